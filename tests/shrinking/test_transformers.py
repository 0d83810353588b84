"""Small networks of transformers, if that is installed: heads and hidden units that are off go."""

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.layers import drawing_by

transformers = pytest.importorskip("transformers")
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}


def bert(**options):
    config = transformers.BertConfig(vocab_size=60, intermediate_size=64, **SIZES, **options)
    return transformers.BertForSequenceClassification(config), "value", "intermediate.dense"


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=60, n_layer=2, n_head=4, n_embd=32, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config), "c_attn", "c_fc"


def llama(keys=4):
    config = transformers.LlamaConfig(
        vocab_size=60, intermediate_size=64, num_key_value_heads=keys, **SIZES
    )
    return transformers.LlamaForCausalLM(config), "v_proj", "up_proj"


NETS = {
    "bert": bert, "eager bert": lambda: bert(attn_implementation="eager"), "gpt2": gpt2,
    "llama": llama, "llama, shared keys": lambda: llama(2),
}  # fmt: skip


@torch.no_grad()
def half_off_(net, values, hidden):
    """Half of all heads and of the hidden units of two-layer networks."""
    for name, module in net.named_modules():
        if not name.endswith((values, hidden)):
            continue
        turned = hasattr(module, "nf")
        weight = module.weight.T if turned else module.weight
        rows = slice(-len(weight) // 6, None) if values == "c_attn" else slice(len(weight) // 2)
        rows = slice(len(weight) // 2) if name.endswith(hidden) else rows
        weight[rows] = 0
        if module.bias is not None:
            nn.init.normal_(module.bias)
            module.bias[rows] = 0
    return net.eval()


def logits(net, x):
    with torch.no_grad():
        return net(**x).logits if isinstance(x, dict) else net(x).logits


def assert_same(small, net, x):
    one, other = logits(small, x), logits(net, x)
    assert (one - other).abs().max() <= 1e-5 * other.abs().max()


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("masked", [False, True])
def test_half_of_heads_and_hidden_units_go(name, masked):
    torch.manual_seed(0)
    net, values, hidden = NETS[name]()
    half_off_(net, values, hidden)
    x = {"input_ids": torch.randint(0, 60, (2, 7))}
    if masked:
        x["attention_mask"] = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
    small = pb.shrink(net, x)
    assert_same(small, net, x)
    assert_same(small, net, torch.randint(0, 60, (3, 5)))
    layers = [
        sum(p.numel() for n, p in model.named_parameters() if ".layer" in n or ".h." in n)
        for model in (small, net)
    ]
    assert layers[0] < (0.55 if name != "llama, shared keys" else 0.6) * layers[1]


def test_a_bayesian_one_keeps_its_distribution(tmp_path):
    torch.manual_seed(0)
    net, values, hidden = gpt2()
    x = {"input_ids": torch.randint(0, 60, (2, 7))}
    form = pb.shrink(half_off_(net, values, hidden), x)
    model = pb.bayesianize_(pb.shrink(net, x), prior_std=0.3, std_init=0.1)
    pb.save(model, tmp_path / "small.pocket", lossless=True)
    again = pb.load(tmp_path / "small.pocket", form)
    with drawing_by(model.eval(), "mean"), drawing_by(again, "mean"):
        assert_same(again, model, x)
