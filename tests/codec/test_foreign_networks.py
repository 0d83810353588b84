"""Files that name a network of another library: found, built where allowed, or refused."""

import importlib.util
import inspect
import sys

import fake_timm
import pytest
import torch
from hostile_files import crafted, with_model
from torch import nn

import pocketbayes as pb
from pocketbayes.models.foreign import _REACHING_OUT, _fields_of

OPTIONS = {"num_classes": 5, "in_chans": 2}


@pytest.fixture
def timm(monkeypatch):
    return fake_timm.installed(monkeypatch)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.pocket"


def tiny(timm, **options):
    torch.manual_seed(0)
    return timm.create_model("tiny", **OPTIONS | options)


def probs(model, x):
    return pb.predict(model, x, estimator="mean").probs


def test_a_model_of_a_library_is_named_and_built_again(timm, path):
    model = pb.bayesianize_(tiny(timm))
    assert pb.save(model, path, lossless=True).network == "timm:tiny"
    assert "timm:tiny, in_chans=2, num_classes=5: load(path, allow=('timm',))" in str(
        pb.inspect(path)
    )
    before = torch.random.get_rng_state()
    again = pb.load(path, allow=("timm",))
    assert torch.equal(before, torch.random.get_rng_state())
    x = torch.randn(3, 2, 8, 8)
    torch.testing.assert_close(probs(again, x), probs(model.eval(), x))
    data = path.read_bytes()
    pb.save(again, path, lossless=True)
    assert path.read_bytes() == data


@pytest.mark.parametrize("first", [[], ["conv1"], ("elsewhere",), None])
def test_a_model_may_have_no_first_convolution_or_several(first, timm, path):
    net = timm.create_model("tiny", num_classes=5)
    net.pretrained_cfg["first_conv"] = first
    assert pb.save(pb.bayesianize_(net), path).network == "timm:tiny"


def test_a_library_that_is_not_allowed_is_not_asked(timm, path):
    pb.save(pb.bayesianize_(tiny(timm)), path)
    fake_timm.MADE.clear()
    for allow in ((), ("transformers",)):
        with pytest.raises(pb.FormatError, match=r"timm:tiny.*allow=\('timm',\).*load\(path, net"):
            pb.load(path, allow=allow)
    with pytest.raises(pb.FormatError, match=r"allow must be one of timm, transformers.*'os'"):
        pb.load(path, allow=("os",))
    assert not fake_timm.MADE
    assert pb.load(path, tiny(timm))


@pytest.mark.parametrize(
    "network", ["timm", "timm:tiny", {"name": "timm:tiny", "options": OPTIONS}]
)
def test_a_network_may_be_named(network, timm, path):
    assert pb.save(pb.bayesianize_(tiny(timm)), path, network=network).network == "timm:tiny"
    assert pb.load(path, allow="timm")


def other_activation(net):
    net.act = nn.GELU()


def other_rate(net):
    net.drop.p = 0.5


def no_bias(net):
    net.fc = nn.Linear(4, 5, bias=False)


def larger_head(net):
    net.fc = nn.Linear(4, 6)


def one_layer_more(net):
    net.extra = nn.Linear(4, 5)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (other_activation, "act is a GELU, not a ReLU"),
        (other_rate, "drop.p is 0.5, not 0.0"),
        (no_bias, "fc.bias has shape None"),
        (larger_head, "fc.out_features is 6, not 5"),
        (one_layer_more, "only one of them has extra"),
    ],
)
def test_a_model_that_was_changed_is_not_named(change, where, timm, path):
    net = tiny(timm)
    change(net)
    model = pb.bayesianize_(net)
    assert pb.save(model, path).network is None
    with pytest.raises(pb.PocketBayesError, match=where):
        pb.save(model, path, network="timm:tiny")


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("tiny", "no networks of a library 'tiny'"),
        ("tim:tiny", "did you mean 'timm'"),
        ("timm:a/b", "no paths"),
        ("transformers", "not of transformers"),
        ({"options": {}}, 'network must be as "timm:resnet50"'),
        ({"name": "timm:tiny", "options": {"num_classes": 6}}, "num_classes is 5, not 6"),
        (
            {"name": "timm:tiny", "options": OPTIONS | {"depth": 10}},
            "only one of them has blocks.1",
        ),
    ],
)
def test_a_name_of_another_network_is_refused(network, message, timm, path):
    with pytest.raises(pb.PocketBayesError, match=message):
        pb.save(pb.bayesianize_(tiny(timm)), path, network=network)
    assert not path.exists()


HOSTILE = {
    "path": ("timm:../../tiny", {}, "no name of a network"),
    "hub": ("timm:hf-hub:me/tiny", {}, "no name of a network"),
    "local": ("timm:local-dir:tiny", {}, "no name of a network"),
    "attribute": ("timm:models.tiny", {}, "timm has no network"),
    "library": ("os:system", {}, "no networks of a library 'os'"),
    "unknown": ("timm:huge", {}, "timm has no network 'huge'"),
    "checkpoint": ("timm:tiny", {"checkpoint_path": "x"}, "'checkpoint_path' is no option"),
    "download": ("timm:tiny", {"pretrained": True}, "'pretrained' is no option"),
    "config": ("timm:tiny", {"pretrained_cfg": {"file": "/etc/passwd"}}, "is no option"),
    "huge": ("timm:tiny", {"num_classes": 10**9}, "at most 1,048,576"),
    "infinite": ("timm:tiny", {"drop_rate": int("9" * 400)}, "at most 1,048,576"),
    "object": ("timm:tiny", {"num_classes": {"a": 1}}, "must be a word"),
    "place": ("timm:tiny", {"global_pool": "../a"}, "must be a word"),
    "many": ("timm:tiny", {"depths": [1] * 2000}, "must be a word"),
    "layers": ("timm:tiny", {"depth": 1_000_000}, "far more layers"),
    "few layers more": ("timm:tiny", OPTIONS | {"depth": 2}, "blocks.1.weight of the network"),
    "no layer": ("timm:tiny", OPTIONS | {"depth": 0}, "blocks.0.weight is not in the network"),
    "shape": ("timm:tiny", OPTIONS | {"num_classes": 2**20}, r"fc.weight has shape \(5, 4\)"),
    "argument": ("timm:tiny", {"embed_dim": 3}, "cannot be built: TypeError"),
    "no number": ("timm:tiny", {"num_classes": -1}, "cannot be built"),
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_hostile_networks_are_refused_before_memory_is_taken(attack, timm, path):
    pb.save(pb.bayesianize_(tiny(timm)), path)
    name, options, message = HOSTILE[attack]
    network = {"name": name, "options": options}
    path.write_bytes(crafted(path.read_bytes(), with_model(network=network)))
    fake_timm.MADE.clear()
    allow = ("timm",) if name.startswith("timm") else ("timm", "transformers")
    with pytest.raises(pb.FormatError, match=r"m\.pocket: .*"):
        pb.load(path, allow=())
    with pytest.raises(pb.FormatError, match=message):
        pb.load(path, allow=allow)
    assert set(fake_timm.MADE) <= {"meta"}


def test_more_weights_than_the_caller_bears_are_not_built(timm, path):
    pb.save(pb.bayesianize_(tiny(timm)), path)
    fake_timm.MADE.clear()
    with pytest.raises(pb.FormatError, match="more than 100 weights"):
        pb.load(path, allow=("timm",), max_weights=100)
    assert fake_timm.MADE == ["meta"]


def test_a_library_that_is_not_installed_is_named(timm, path, monkeypatch):
    pb.save(pb.bayesianize_(tiny(timm)), path)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(pb.FormatError, match="pip install timm"):
        pb.load(path, allow=("timm",))


def test_members_of_an_ensemble_are_built_alike(timm, path):
    data = [(torch.randn(8, 2, 8, 8), torch.randint(5, (8,)))]
    method = pb.DeepEnsemble(members=2)
    model = pb.fit(pb.bayesianize_(tiny(timm)), data, method, epochs=1, progress=False).model
    assert pb.save(model, path).network == "timm:tiny"
    again = pb.load(path, allow=("timm",))
    x = torch.randn(3, 2, 8, 8)
    torch.testing.assert_close(
        pb.predict(again, x).probs, pb.predict(model, x).probs, atol=1e-2, rtol=0
    )


SMALL = {
    "vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 20, "max_position_embeddings": 12,
}  # fmt: skip


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


def bert(transformers, **options):
    torch.manual_seed(0)
    config = transformers.BertConfig(**SMALL | {"num_labels": 3} | options)
    return transformers.BertForSequenceClassification(config)


def classify(model, x):
    with torch.no_grad(), pb.one_draw(model):
        return model(x).logits


@pytest.mark.parametrize(
    ("network", "labels"), [(None, None), ("transformers:bert-base-uncased", ["no", "yes: ü", "-"])]
)
def test_a_model_of_transformers_is_named_and_built_again(network, labels, transformers, path):
    options = {"id2label": dict(enumerate(labels))} if labels else {}
    model = pb.bayesianize_(bert(transformers, **options), estimator="mean")
    saved = pb.save(model, path, network=network, lossless=True)
    assert saved.network == (network or "transformers:BertForSequenceClassification")
    again, x = pb.load(path, allow=("transformers",)), torch.randint(60, (3, 5))
    torch.testing.assert_close(classify(again, x), classify(model.eval(), x))
    assert again.config.id2label == model.config.id2label
    data = path.read_bytes()
    pb.save(again, path, lossless=True)
    assert path.read_bytes() == data


def test_the_file_tells_no_path_and_passes_over_what_builds_nothing(transformers, path):
    net = bert(transformers, task_specific_params={"a": {"b": 1}}, gradient_checkpointing=False)
    net.config._name_or_path = net.name_or_path = "/home/me/secret"
    assert pb.save(pb.bayesianize_(net), path).network is not None
    assert b"secret" not in path.read_bytes()
    assert pb.load(path, allow=("transformers",)).name_or_path == ""


def config_with(**fields):
    def change(description, sections):
        options = description["model"]["network"]["options"]
        options |= {k: v for k, v in fields.items() if k == "class"}
        options["config"] |= {k: v for k, v in fields.items() if k != "class"}

    return change


CONFIGS = {
    "code": ({"auto_map": {"AutoModel": "me/x--model.M"}}, "'auto_map' is no field"),
    "place": ({"_name_or_path": "me/x"}, "'_name_or_path' is no field"),
    "kernel": ({"attn_implementation": "me/kernel"}, "'attn_implementation' is no field"),
    "quantised": ({"quantization_config": {"a": 1}}, "'quantization_config' is no field"),
    "nested": ({"hidden_act": {"a": {"b": 1}}}, "hidden_act must be a word"),
    "path": ({"hidden_act": "../gelu"}, "hidden_act must be a word"),
    "huge": ({"vocab_size": 2**40}, "at most 1,048,576"),
    "wider": ({"intermediate_size": 2**20}, "has shape"),
    "layers": ({"num_hidden_layers": 2**20}, "far more layers"),
    "layer": ({"num_hidden_layers": 3}, "layer.2.* is not in the file"),
    "class": ({"class": "AutoModel"}, "no network 'AutoModel'"),
    "function": ({"class": "pipeline"}, "no network 'pipeline'"),
    "module": ({"class": "models.bert.BertModel"}, "no network"),
    "other class": ({"class": "BertForMaskedLM"}, "is not in the network"),
    "type": ({"model_type": "os"}, "no network"),
    "compiles": ({"class": "RwkvModel", "model_type": "rwkv"}, "fetches or compiles kernels"),
    "of two types": ({"model_type": "gpt2"}, "no network"),
    "list as type": ({"model_type": []}, "no network"),
    "labels": ({"id2label": {"0": "a"}}, "id2label must be a list"),
    "long label": ({"id2label": ["a" * 300]}, "id2label must be a list"),
    "more labels": ({"id2label": ["a", "b", "c", "d"]}, "id2label must be a list"),
}


@pytest.mark.parametrize("attack", CONFIGS)
def test_hostile_configurations_are_refused(attack, transformers, path):
    pb.save(pb.bayesianize_(bert(transformers)), path)
    fields, message = CONFIGS[attack]
    path.write_bytes(crafted(path.read_bytes(), config_with(**fields)))
    with pytest.raises(pb.FormatError, match=message):
        pb.load(path, allow=("transformers",))


def test_no_field_that_reaches_outside_may_be_set(transformers):
    for kind, field in (("JambaConfig", "use_mamba_kernels"), ("DPTConfig", "backbone_config")):
        config = getattr(transformers, kind)
        assert field in inspect.signature(config).parameters
        assert field not in _fields_of(config)


def test_networks_with_encoder_and_decoder_come_back(transformers, path):
    sizes = {f"{part}_{what}": n for part in ("encoder", "decoder")
             for what, n in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 8))}  # fmt: skip
    config = transformers.BartConfig(vocab_size=30, d_model=8, max_position_embeddings=16, **sizes)
    model = pb.bayesianize_(transformers.BartForSequenceClassification(config))
    saved = pb.save(model, path, lossless=True)
    assert saved.network == "transformers:BartForSequenceClassification"
    again = pb.load(path, allow=("transformers",))
    assert again.config.decoder_ffn_dim == 8
    plain = dict(model.named_parameters())
    assert all(torch.equal(p, plain[name]) for name, p in again.named_parameters())
    assert {"drop_path_rate", "decoder_depths"} & _fields_of(transformers.SegformerConfig)
    for field in ("text_encoder", "decoder", "encoder_config", "remote_code", "kernel_path"):
        assert _REACHING_OUT.search(field)


def test_configurations_inside_of_others_are_not_named(transformers, path):
    vision = {k: SMALL[k] for k in SMALL if k.startswith(("hidden", "num", "inter"))}
    config = transformers.CLIPConfig(
        text_config=SMALL, vision_config=vision | {"image_size": 8, "patch_size": 4}
    )
    assert pb.save(pb.bayesianize_(transformers.CLIPModel(config)), path).network is None


@pytest.mark.skipif(not importlib.util.find_spec("torchvision"), reason="timm needs torchvision")
def test_a_real_model_of_timm(path):
    timm = pytest.importorskip("timm")
    model = pb.bayesianize_(timm.create_model("mobilenetv3_small_050", num_classes=4, in_chans=1))
    assert pb.save(model, path).network == "timm:mobilenetv3_small_050"
    again, x = pb.load(path, allow=("timm",)), torch.randn(2, 1, 32, 32)
    torch.testing.assert_close(probs(again, x), probs(model.eval(), x), atol=1e-2, rtol=0)
