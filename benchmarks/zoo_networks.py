"""The networks of zoo.py: of each family of a library a small one, and what it is called with."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Network:
    """One family.

    Attributes:
        family: its name.
        make: makes a network with random weights.
        example: what to call it with, always the same: a tensor, a tuple, or tensors by name.
        predicts: whether its first output has one row for each example, so that it can be trained.
    """

    family: str
    make: Callable[[], nn.Module]
    example: Callable[[], Any]
    predicts: bool = True


def normal(*shape: int) -> Callable[[], Tensor]:
    """Normal numbers."""
    return lambda: torch.randn(shape, generator=torch.Generator().manual_seed(7))


def words(rows: int = 2, length: int = 12, first: int = 5, most: int = 90) -> Tensor:
    """Tokens."""
    draw = torch.Generator().manual_seed(7)
    return torch.randint(first, most, (rows, length), generator=draw)


# Of each of timm's modules a small network; the larger ones with fewer units and blocks.
TIMM = (
    "beit_base_patch16_224", "halonet_h1", "test_byobnet", "cait_xxs24_224", "coat_tiny",
    "convit_tiny", "convmixer_768_32", "test_convnext", "cpubone_nano", "crossvit_tiny_240",
    "csatv2", "cs3darknet_focus_s", "cspnext_tiny", "davit_tiny", "deepseek_vit_412m",
    "deit_tiny_patch16_224", "densenet121", "dla46x_c", "dpn48b", "edgenext_xx_small",
    "efficientformer_l1", "efficientformerv2_s0", "test_efficientnet", "efficientvim_m1",
    "efficientvit_b0", "efficientvit_m0", "vit_tiny_patch16_dinov3_qkvb", "fasternet_t0",
    "fastvit_t8", "focalnet_tiny_srf", "gcvit_xxtiny", "gemma4_vit_167m", "ghostnet_050",
    "hardcorenas_b", "hgnetv2_b0", "hiera_tiny_224", "sam2_hiera_tiny", "hrnet_w18_small",
    "iformer_t", "inception_next_atto", "inception_resnet_v2", "inception_v3", "inception_v4",
    "lcnetv2_small", "levit_128s", "lowformer_b0", "test_mambaout", "test_coatnet",
    "poolformerv2_s12", "gmlp_ti16_224", "lcnet_035", "mobilenetv5_base", "mobilevit_xxs",
    "mvitv2_tiny", "naflexvit_base_patch16_gap", "nasnetalarge", "nest_tiny", "nextvit_small",
    "test_nfnet", "pit_ti_224", "pnasnet5large", "pvt_v2_b0", "qwen3_vit_88m", "rdnet_tiny",
    "regnetx_002", "repghostnet_050", "repvit_m1", "res2next50", "resnest14d", "test_resnet",
    "resnetv2_18", "rexnet_100", "selecsls42", "legacy_seresnet18", "sequencer2d_s", "shvit_s1",
    "skresnet18", "starnet_s050", "swiftformer_xs", "swin_tiny_patch4_window7_224",
    "swinv2_tiny_window8_256", "swinv2_cr_tiny_224", "tiny_vit_5m_224", "tnt_s_patch16_224",
    "tresnet_m", "twins_svt_small", "vgg11", "visformer_tiny", "test_vit",
    "vit_tiny_r_s16_p8_224", "test_vit_relpos", "samvit_base_patch16_224", "vitamin_small_224",
    "volo_d1_224", "ese_vovnet19b_slim_dw", "legacy_xception", "xception41p",
    "xcit_nano_12_p8_224",
)  # fmt: skip
NARROW = {"embed_dim": 48, "depth": 2, "num_heads": 3}
SMALLER: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("beit", "deepseek_vit", "gemma4_vit", "qwen3_vit", "naflexvit"), NARROW),
    "vision_transformer_sam": NARROW | {"global_attn_indexes": [1]},
    "davit": {"embed_dims": (16, 32, 48, 64), "num_heads": (1, 2, 3, 4), "depths": (1,) * 4},
    "hiera": {"embed_dim": 24, "stages": (1, 1, 2, 1)},
    "hieradet_sam2": {"embed_dim": 24, "stages": (1, 1, 2, 1)},
    "mobilenetv5": {"channel_multiplier": 0.25},
    "sequencer": {
        "layers": (1,) * 4, "embed_dims": (24, 48, 48, 48), "hidden_sizes": (6, 12, 12, 12),
    },
    "swin_transformer": {"embed_dim": 24, "depths": (2,) * 4},
    "swin_transformer_v2": {"embed_dim": 24, "depths": (2,) * 4},
    "swin_transformer_v2_cr": {"embed_dim": 24, "depths": (2,) * 4},
    "tnt": {"embed_dim": 48, "inner_dim": 12, "depth": 2},
    "twins": {"embed_dims": (16, 32, 64, 128), "depths": (1, 1, 1, 2)},
    "cait": {"depth": 2},
    "xcit": {"depth": 2},
}  # fmt: skip


def timm_networks() -> list[Network]:
    """One of every module of timm; of one that is not known here the first."""
    import timm

    def name_in(module: str) -> str:
        names = timm.list_models(module=module)
        return next((name for name in TIMM if name in names), names[0])

    modules = [module for module in timm.list_modules() if timm.list_models(module=module)]
    return [Network(m, *timm_network(timm, name_in(m), SMALLER.get(m, {}))) for m in modules]


def timm_network(
    timm: Any, name: str, options: dict[str, Any]
) -> tuple[Callable[[], nn.Module], Callable[[], Tensor]]:
    """How to make it, and pictures of the size that it wants, or of 96 x 96."""
    known = timm.get_pretrained_cfg(name)
    side = known.input_size[-1] if known and known.fixed_input_size else 96
    return lambda: timm.create_model(name, num_classes=10, **options), normal(2, 3, side, side)


SMALL = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 64, "pad_token_id": 0, "use_cache": False,
}  # fmt: skip
KEYS = {"num_key_value_heads": 2, "head_dim": 8}
PICTURES = {"image_size": 32, "patch_size": 8}
STAGES = {"hidden_sizes": [8, 12], "depths": [1, 1], "num_stages": 2}
WINDOWS = {
    "image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2],
    "window_size": 4, "num_hidden_layers": None, "num_attention_heads": None,
}  # fmt: skip
EXPERTS = {"moe_intermediate_size": 16, "num_local_experts": 4, "num_experts": 4}
SOUND = {
    "conv_dim": [16, 16], "conv_stride": [4, 4], "conv_kernel": [8, 8],
    "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "num_feat_extract_layers": 2,
}  # fmt: skip
TEXT, IMAGE, BOTH, SPEECH, WAVE, PAIR = "text", "image", "both", "speech", "wave", "pair"
LARGER = "larger image"
# Family: class, its settings beside SMALL, and what it reads.
TRANSFORMERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "bert": ("BertForSequenceClassification", {}, TEXT),
    "roberta": ("RobertaForMaskedLM", {}, TEXT),
    "distilbert": (
        "DistilBertForSequenceClassification",
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 37}, TEXT,
    ),
    "albert": ("AlbertForMaskedLM", {"embedding_size": 16}, TEXT),
    "electra": ("ElectraForSequenceClassification", {"embedding_size": 16}, TEXT),
    "deberta": ("DebertaForSequenceClassification", {"relative_attention": True,
                "pos_att_type": ["c2p", "p2c"]}, TEXT),
    "deberta-v2": ("DebertaV2ForSequenceClassification", {"relative_attention": True,
                   "position_buckets": 8, "pos_att_type": ["c2p", "p2c"]}, TEXT),
    "xlnet": ("XLNetForSequenceClassification",
              {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48,
               "max_position_embeddings": None}, TEXT),
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4}, TEXT),
    "gpt-neo": ("GPTNeoForCausalLM", {"num_layers": 2, "num_heads": 4,
                "attention_types": [[["global", "local"], 1]]}, TEXT),
    "gpt-neox": ("GPTNeoXForCausalLM", {}, TEXT),
    "gptj": ("GPTJForCausalLM", {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4}, TEXT),
    "llama": ("LlamaForCausalLM", KEYS, TEXT),
    "mistral": ("MistralForCausalLM", KEYS, TEXT),
    "mixtral": ("MixtralForCausalLM", KEYS | EXPERTS, TEXT),
    "qwen2": ("Qwen2ForCausalLM", KEYS, TEXT),
    "qwen2-moe": ("Qwen2MoeForCausalLM",
                  KEYS | EXPERTS | {"shared_expert_intermediate_size": 16}, TEXT),
    "qwen3": ("Qwen3ForCausalLM", KEYS, TEXT),
    "gemma": ("GemmaForCausalLM", KEYS, TEXT),
    "gemma2": ("Gemma2ForCausalLM", KEYS, TEXT),
    "phi": ("PhiForCausalLM", {"num_key_value_heads": 4}, TEXT),
    "phi3": ("Phi3ForCausalLM", {"num_key_value_heads": 2}, TEXT),
    "deepseek-v3": ("DeepseekV3ForCausalLM", EXPERTS | {
        "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2,
        "kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4,
        "v_head_dim": 8, "first_k_dense_replace": 1, "num_key_value_heads": 4}, TEXT),
    "gpt-oss": ("GptOssForCausalLM", KEYS | EXPERTS, TEXT),
    "olmo2": ("Olmo2ForCausalLM", KEYS, TEXT),
    "t5": ("T5ForConditionalGeneration",
           {"d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4}, PAIR),
    "switch-transformers": ("SwitchTransformersForConditionalGeneration",
           {"d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4,
            "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1, **EXPERTS}, PAIR),
    "bart": ("BartForConditionalGeneration", {
        "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 37, "decoder_ffn_dim": 37}, PAIR),
    "rwkv": ("RwkvForCausalLM", {"attention_hidden_size": 32}, TEXT),
    "rwkv-not-rescaled": (
        "RwkvForCausalLM", {"attention_hidden_size": 32, "rescale_every": 0}, TEXT,
    ),
    "mamba": ("MambaForCausalLM", {"state_size": 4}, TEXT),
    "mamba2": ("Mamba2ForCausalLM", {"state_size": 4, "num_heads": 8, "head_dim": 8,
               "n_groups": 1, "chunk_size": 4}, TEXT),
    "falcon": ("FalconForCausalLM", {}, TEXT),
    "opt": ("OPTForCausalLM", {"ffn_dim": 37, "word_embed_proj_dim": 32}, TEXT),
    "bloom": ("BloomForCausalLM", {"n_layer": 2, "n_head": 4}, TEXT),
    "mpnet": ("MPNetForSequenceClassification", {}, TEXT),
    "modernbert": ("ModernBertForSequenceClassification", {}, TEXT),
    "longformer": ("LongformerForSequenceClassification", {"attention_window": 4}, TEXT),
    "big-bird": ("BigBirdForSequenceClassification", {"block_size": 2}, TEXT),
    "funnel": ("FunnelForSequenceClassification", {"d_model": 32, "n_head": 4, "d_head": 8,
               "d_inner": 48, "num_hidden_layers": None, "block_sizes": [1, 1],
               "num_decoder_layers": 1}, TEXT),
    "fnet": ("FNetForSequenceClassification", {}, TEXT),
    "convbert": ("ConvBertForSequenceClassification", {"embedding_size": 32}, TEXT),
    "squeezebert": ("SqueezeBertForSequenceClassification", {"embedding_size": 32,
                    "intermediate_size": 64}, TEXT),
    "mobilebert": ("MobileBertForSequenceClassification", {"embedding_size": 32,
                   "intra_bottleneck_size": 32, "true_hidden_size": 32}, TEXT),
    "vit": ("ViTForImageClassification", PICTURES, IMAGE),
    "deit": ("DeiTForImageClassification", PICTURES, IMAGE),
    "swin": ("SwinForImageClassification", WINDOWS, IMAGE),
    "swinv2": ("Swinv2ForImageClassification", WINDOWS, IMAGE),
    "beit": ("BeitForImageClassification", PICTURES | {"use_relative_position_bias": True,
             "use_mask_token": True}, IMAGE),
    "dinov2": ("Dinov2ForImageClassification", PICTURES, IMAGE),
    "convnext": ("ConvNextForImageClassification", STAGES, IMAGE),
    "convnextv2": ("ConvNextV2ForImageClassification", STAGES, IMAGE),
    "resnet": ("ResNetForImageClassification", STAGES | {"embedding_size": 8}, IMAGE),
    "mobilevit": ("MobileViTForImageClassification", {"hidden_sizes": [16, 24, 32],
                  "neck_hidden_sizes": [4, 4, 8, 12, 16, 24, 32], "image_size": 128}, LARGER),
    "segformer": ("SegformerForSemanticSegmentation", {"num_encoder_blocks": 2, "depths": [1, 1],
        "hidden_sizes": [8, 16], "num_attention_heads": [1, 2], "sr_ratios": [2, 1],
        "patch_sizes": [7, 3], "strides": [4, 2], "mlp_ratios": [2, 2],
        "decoder_hidden_size": 16}, IMAGE),
    "whisper": ("WhisperForConditionalGeneration", {
        "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 37, "decoder_ffn_dim": 37,
        "num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 40}, SPEECH),
    "wav2vec2": ("Wav2Vec2ForCTC", SOUND, WAVE),
    "hubert": ("HubertForCTC", SOUND, WAVE),
    "wavlm": ("WavLMForCTC", SOUND, WAVE),
    "clip": ("CLIPModel", {"projection_dim": 16, "text_config": SMALL,
             "vision_config": SMALL | PICTURES}, BOTH),
    "siglip": ("SiglipModel", {"text_config": SMALL, "vision_config": SMALL | PICTURES}, BOTH),
}  # fmt: skip
READ: dict[str, Callable[[], dict[str, Tensor]]] = {
    TEXT: lambda: {"input_ids": words()},
    PAIR: lambda: {"input_ids": words(), "decoder_input_ids": words(2, 5)},
    IMAGE: lambda: {"pixel_values": normal(2, 3, 32, 32)()},
    LARGER: lambda: {"pixel_values": normal(2, 3, 128, 128)()},
    BOTH: lambda: {"input_ids": words(), "pixel_values": normal(2, 3, 32, 32)()},
    SPEECH: lambda: {"input_features": normal(2, 8, 40)(), "decoder_input_ids": words(2, 5)},
    WAVE: lambda: {"input_values": normal(2, 600)()},
}


def transformers_networks() -> list[Network]:
    """Those of Hugging Face, a few layers of 32 units each."""
    return [
        Network(family, lambda said=said: transformer(*said[:2]), READ[said[2]])
        for family, said in TRANSFORMERS.items()
    ]


def transformer(name: str, options: dict[str, Any]) -> nn.Module:
    """A network of this class."""
    import transformers

    kind = getattr(transformers, name)
    said = {key: value for key, value in (SMALL | options).items() if value is not None}
    made: nn.Module = kind(kind.config_class(**said))
    return made


def peft_networks() -> list[Network]:
    """Adapters on a frozen BERT and a frozen Llama; the base learns nothing."""
    import peft

    def adapted(base: str, config: Any) -> nn.Module:
        made: nn.Module = peft.get_peft_model(transformer(*TRANSFORMERS[base][:2]), config())
        return made

    bert, llama = ["query", "value"], ["q_proj", "v_proj"]
    configs: dict[str, tuple[str, Callable[[], Any]]] = {
        "lora": ("bert", lambda: peft.LoraConfig(task_type="SEQ_CLS", target_modules=bert)),
        "lora-embedding": ("llama", lambda: peft.LoraConfig(
            task_type="CAUSAL_LM", target_modules=["embed_tokens", *llama])),
        "lora-gpt2": ("gpt2", lambda: peft.LoraConfig(
            task_type="CAUSAL_LM", target_modules=["c_attn"], fan_in_fan_out=True)),
        "lora-convolution": ("resnet", lambda: peft.LoraConfig(target_modules=["convolution"])),
        "rslora": ("llama", lambda: peft.LoraConfig(target_modules=llama, use_rslora=True)),
        "dora": ("llama", lambda: peft.LoraConfig(target_modules=llama, use_dora=True)),
        "adalora": ("bert", lambda: peft.AdaLoraConfig(target_modules=bert, total_step=10)),
        "ia3": ("llama", lambda: peft.IA3Config(
            target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"])),
        "vera": ("llama", lambda: peft.VeraConfig(target_modules=["q_proj"], r=4)),
        "loha": ("llama", lambda: peft.LoHaConfig(target_modules=llama)),
        "lokr": ("llama", lambda: peft.LoKrConfig(target_modules=llama)),
        "oft": ("llama", lambda: peft.OFTConfig(target_modules=llama, oft_block_size=4, r=0)),
        "boft": ("llama", lambda: peft.BOFTConfig(target_modules=llama, boft_block_size=4)),
        "hra": ("llama", lambda: peft.HRAConfig(target_modules=llama)),
        "fourierft": ("llama", lambda: peft.FourierFTConfig(target_modules=llama, n_frequency=9)),
        "prompt": ("llama", lambda: peft.PromptTuningConfig(
            task_type="CAUSAL_LM", num_virtual_tokens=4)),
        "p-tuning": ("llama", lambda: peft.PromptEncoderConfig(
            task_type="CAUSAL_LM", num_virtual_tokens=4, encoder_hidden_size=16)),
        "prefix": ("llama", lambda: peft.PrefixTuningConfig(
            task_type="CAUSAL_LM", num_virtual_tokens=4)),
        "layer-norm": ("llama", lambda: peft.LNTuningConfig(target_modules=["input_layernorm"])),
    }  # fmt: skip
    reads = {name: READ[TRANSFORMERS[name][2]] for name in TRANSFORMERS}
    return [
        Network(family, lambda b=base, c=config: adapted(b, c), reads[base])
        for family, (base, config) in configs.items()
    ]


def loralib_networks() -> list[Network]:
    """Layers that hold an adapter beside their frozen weight."""
    import loralib

    def frozen(*layers: nn.Module) -> nn.Module:
        net = nn.Sequential(*layers)
        loralib.mark_only_lora_as_trainable(net)
        net[-1].requires_grad_(True)
        return net

    def linear(**options: Any) -> nn.Module:
        return frozen(loralib.Linear(8, 16, r=2, **options), nn.ReLU(), nn.Linear(16, 3))

    def merged() -> nn.Module:
        parts = [True, False, True]
        layer = loralib.MergedLinear(8, 12, r=2, enable_lora=parts, merge_weights=False)
        return frozen(layer, nn.Linear(12, 3))

    def convolution() -> nn.Module:
        layer = loralib.Conv2d(3, 6, kernel_size=3, r=2, merge_weights=False)
        return frozen(layer, nn.Flatten(), nn.Linear(216, 3))

    def embedding() -> nn.Module:
        layer = loralib.Embedding(99, 8, r=2, merge_weights=False)
        return frozen(layer, nn.Flatten(), nn.Linear(96, 3))

    return [
        Network("linear", lambda: linear(merge_weights=False), normal(4, 8)),
        Network("linear, merging", linear, normal(4, 8)),
        Network("merged-linear", merged, normal(4, 8)),
        Network("convolution", convolution, normal(2, 3, 8, 8)),
        Network("embedding", embedding, words),
    ]


class Graph(nn.Module):
    """Two layers on a graph, whose edges stay the same."""

    def __init__(self, first: nn.Module, second: nn.Module, extra: Callable[[], Any]) -> None:
        super().__init__()
        self.first, self.second, self.extra = first, second, extra

    def forward(self, x: Tensor) -> Tensor:
        """One row of outputs for each node."""
        edges = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 2, 3, 4, 5, 0, 3, 5]])
        return self.second(self.first(x, edges, *self.extra()).relu(), edges, *self.extra())


def geometric_networks() -> list[Network]:
    """Two layers of each kind."""
    from torch_geometric import nn as layers

    def own(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs))

    features, types = normal(8, 3), lambda: torch.arange(8) % 2
    degrees = {"aggregators": ["mean", "max"], "scalers": ["identity"], "deg": torch.ones(9).long()}
    plain: dict[str, dict[str, Any]] = {
        "GCNConv": {}, "SAGEConv": {}, "GATConv": {}, "GATv2Conv": {}, "TransformerConv": {},
        "GraphConv": {}, "TAGConv": {}, "ARMAConv": {}, "SGConv": {}, "LEConv": {}, "MFConv": {},
        "ChebConv": {"K": 2}, "ResGatedGraphConv": {}, "FiLMConv": {}, "ClusterGCNConv": {},
        "GENConv": {}, "SuperGATConv": {}, "SSGConv": {"alpha": 0.1}, "FeaStConv": {},
        "HypergraphConv": {}, "PNAConv": degrees, "GeneralConv": {}, "EGConv": {"num_heads": 1},
    }  # fmt: skip
    edged = {
        "RGCNConv": ({"num_relations": 2}, lambda: (types(),)),
        "FastRGCNConv": ({"num_relations": 2}, lambda: (types(),)),
        "GMMConv": ({"dim": 3, "kernel_size": 2}, lambda: (features(),)),
    }

    def built(name: str, options: dict[str, Any], extra: Callable[[], Any]) -> nn.Module:
        kind = getattr(layers, name)
        return Graph(kind(5, 8, **options), kind(8, 3, **options), extra)

    def nothing() -> tuple[()]:
        return ()

    made = {name: (options, nothing) for name, options in plain.items()} | edged
    wholes: dict[str, Callable[[], nn.Module]] = {
        "GINConv": lambda: Graph(layers.GINConv(own(5, 8)), layers.GINConv(own(8, 3)), nothing),
        "EdgeConv": lambda: Graph(
            layers.EdgeConv(own(10, 8)), layers.EdgeConv(own(16, 3)), nothing
        ),
        "NNConv": lambda: Graph(
            layers.NNConv(5, 8, own(3, 40)), layers.NNConv(8, 3, own(3, 24)), lambda: (features(),)
        ),
        "GatedGraphConv": lambda: Graph(
            layers.GatedGraphConv(8, 2), layers.GatedGraphConv(8, 2), nothing
        ),
        "GCN": lambda: Graph(layers.GCN(5, 8, 2), layers.GAT(5, 8, 2, 3), nothing).first,
        "GIN": lambda: layers.GIN(5, 8, 2, 3),
        "PNA": lambda: layers.PNA(5, 8, 2, 3, **degrees),
    }
    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 2, 3, 4, 5, 0, 3, 5]])
    return [
        Network(name, lambda n=name, m=said: built(n, *m), normal(6, 5))
        for name, said in made.items()
    ] + [
        Network(
            name, make, normal(6, 5) if "Conv" in name else lambda: (normal(6, 5)(), edges),
            predicts="Conv" in name,
        )
        for name, make in wholes.items()
    ]  # fmt: skip


def from_calls(
    said: Iterable[tuple[str, Callable[[], nn.Module], Callable[[], Any]]],
) -> list[Network]:
    """One network for each line."""
    return [Network(*line) for line in said]


LIBRARIES: dict[str, Callable[[], list[Network]]] = {
    "timm": timm_networks,
    "transformers": transformers_networks,
    "peft": peft_networks,
    "loralib": loralib_networks,
    "torch_geometric": geometric_networks,
}
