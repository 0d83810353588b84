"""From a trained network of each kind to a file and back, in ten lines."""

import copy
import sys

import pytest
import torch
from torch import nn

import pocketbayes as pb

WORDS = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}


def sentences(rows=400, seed=0):
    words = torch.randint(2, 50, (rows, 6), generator=torch.Generator().manual_seed(seed))
    return [
        {"input_ids": part, "labels": (part[:, -1] > 25).long()} for part in words.split(rows // 10)
    ]


def classes(rows=300, seed=0):
    x = torch.randn(rows, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
    return [(part, (part.mean((1, 2, 3)) > 0).long()) for part in x.split(50)]


def trained(net, batches, epochs):
    """The network after plain training."""
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(epochs):
        for x, y in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
    return net


def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2))


def accuracy(model, batches):
    return pb.evaluate(model, batches, estimator="weight").accuracy


def test_an_own_checkpoint(tmp_path):
    torch.manual_seed(0)
    torch.save(trained(net(), classes(), 20).state_dict(), tmp_path / "trained.pt")
    model = net()
    model.load_state_dict(torch.load(tmp_path / "trained.pt", weights_only=True))
    before = accuracy(pb.bayesianize_(copy.deepcopy(model), estimator="mean"), classes())
    pb.fit(pb.bayesianize_(model), classes(), epochs=1, progress=False)
    pb.save(model, tmp_path / "m.pocket")
    again = pb.load(tmp_path / "m.pocket", net)
    assert before > 0.95
    assert accuracy(again, classes()) > before - 0.02


def test_a_model_of_timm(tmp_path):
    pytest.importorskip("torchvision", reason="timm needs torchvision")
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    plain = timm.create_model("mobilenetv3_small_050", num_classes=2, in_chans=1)
    model = pb.bayesianize_(trained(plain, classes(), 1), estimator="weight")
    pb.fit(model, classes(), epochs=1, progress=False)
    pb.save(model, tmp_path / "m.pocket")
    again = pb.load(tmp_path / "m.pocket", allow=("timm",))
    x = classes()[0][0]
    torch.testing.assert_close(
        *(pb.predict(m, x, estimator="mean").probs for m in (again, model)), atol=0.02, rtol=0
    )


def test_a_classifier_of_hugging_face(tmp_path):
    transformers = pytest.importorskip("transformers")
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(vocab_size=50, intermediate_size=20, **size)
    torch.manual_seed(0)
    model = pb.bayesianize_(transformers.BertForSequenceClassification(config))
    pb.fit(model, sentences(), epochs=8, progress=False, seed=0)
    pb.save(model, tmp_path / "m.pocket")
    again = pb.load(tmp_path / "m.pocket", allow=("transformers",))
    assert abs(accuracy(again, sentences()) - accuracy(model, sentences())) < 0.03


class LoRA(nn.Module):
    def __init__(self, layer, rank=2):
        super().__init__()
        self.layer = layer
        inputs, outputs = layer.weight.shape  # of transformers' Conv1D
        self.down = nn.Linear(inputs, rank, bias=False)
        self.up = nn.Linear(rank, outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x))


def gpt2():
    transformers = pytest.importorskip("transformers")
    size = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
    torch.manual_seed(0)
    config = transformers.GPT2Config(num_labels=2, **size, **WORDS)
    return transformers.GPT2ForSequenceClassification(config)


def with_own_lora():
    model = gpt2().requires_grad_(False)
    for block in model.transformer.h:
        block.attn.c_attn = LoRA(block.attn.c_attn)
    model.score.requires_grad_(True)
    return model


def with_peft():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["c_attn"], task_type="SEQ_CLS")
    return peft.get_peft_model(gpt2(), config)


@pytest.mark.parametrize("adapted", [with_own_lora, with_peft])
@pytest.mark.filterwarnings("ignore")  # transformers and peft of each other
def test_gpt2_whose_adapters_alone_are_bayesian(adapted, tmp_path):
    model = pb.bayesianize_(adapted())
    names = [name for name, _ in pb.named_posteriors(model)]
    assert len(names) == 5
    assert all("c_attn" in name or "score" in name for name in names)
    pb.fit(model, sentences(), epochs=8, progress=False, seed=0)
    assert pb.save(model, tmp_path / "m.pocket", frozen=False).bytes < 4_000
    again = pb.load(tmp_path / "m.pocket", adapted)
    assert abs(accuracy(again, sentences()) - accuracy(model, sentences())) < 0.03
    other = adapted()
    with torch.no_grad():
        next(p for n, p in other.named_parameters() if n.endswith("wte.weight")).mul_(1.5)
    with pytest.raises(pb.FormatError, match="another base"):
        pb.load(tmp_path / "m.pocket", other)


def test_no_library_is_imported_for_a_model_of_ones_own(tmp_path):
    known = set(sys.modules)
    pb.save(pb.bayesianize_(net()), tmp_path / "m.pocket")
    pb.load(tmp_path / "m.pocket", net)
    assert not {"timm", "transformers"} & (set(sys.modules) - known)


def test_adapters_that_came_after_bayesianize_are_told():
    """As `get_peft_model` adds them: all else is frozen, and they stay deterministic."""
    first, last = (pb.bayesianize_(nn.Linear(n, 3)) for n in (2, 3))
    model = nn.Sequential(first.requires_grad_(False), nn.Linear(3, 3), last)
    data = [(torch.randn(8, 2), torch.arange(8) % 3)]
    with pytest.warns(
        UserWarning,
        match=r"^1 of 2 posteriors are frozen.*such as 1\.weight: call bayesianize_ after",
    ):
        pb.fit(model, data, epochs=1, progress=False)


def test_a_part_that_stays_as_it_was_trained_is_fine():
    model = pb.bayesianize_(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 3)))
    model[0].requires_grad_(False)
    pb.fit(model, [(torch.randn(8, 2), torch.arange(8) % 3)], epochs=1, progress=False)
