"""The networks of zoo.py: of each family of a library a small one, and what it is called with."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Network:
    """A small member of a family.

    Attributes:
        name: of its family.
        make: makes a network with random weights.
        example: what to call it with, always the same: a tensor, a tuple, or tensors by name.
        predicts: whether its first output has one row for each example, so that it can be trained.
    """

    name: str
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


# Of each of timm's modules a model or its class, what makes it small, and the side of pictures.
TIMM: dict[str, tuple[str, dict[str, Any], int]] = {
    "beit": ("beit_base_patch16_224", {"embed_dim": 48, "depth": 2, "num_heads": 3, "img_size":
        64}, 64),
    "byoanet": ("halonet_h1", {"width_factor": 0.25}, 256),
    "byobnet": ("test_byobnet", {}, 96),
    "cait": ("cait_xxs24_224", {"depth": 2, "embed_dim": 48, "num_heads": 3, "img_size": 64},
        64),
    "coat": ("coat_tiny", {"img_size": 64}, 64),
    "convit": ("convit_tiny", {"depth": 2, "num_heads": 3, "img_size": 64}, 64),
    "convmixer": ("ConvMixer", {"dim": 64, "depth": 2}, 64),
    "convnext": ("test_convnext", {}, 96),
    "cpubone": ("cpubone_nano", {}, 96),
    "crossvit": ("CrossVit", {"img_size": 96, "img_scale": (1.0, 1.0), "patch_size": (8, 16),
        "embed_dim": (24, 48), "depth": ((1, 2, 0),), "num_heads": (2, 2), "mlp_ratio": (2.0,
        2.0, 1.0)}, 96),
    "csatv2": ("csatv2", {"dims": (16, 32, 48, 64)}, 96),
    "cspnet": ("cs3darknet_focus_s", {}, 96),
    "cspnext": ("cspnext_tiny", {}, 96),
    "davit": ("davit_tiny", {"embed_dims": (16, 32, 48, 64), "num_heads": (1, 2, 3, 4),
        "depths": (1,) * 4}, 96),
    "deepseek_vit": ("deepseek_vit_412m", {"embed_dim": 48, "depth": 2, "num_heads": 3}, 224),
    "deit": ("deit_tiny_patch16_224", {"depth": 2, "embed_dim": 48, "img_size": 64}, 64),
    "densenet": ("densenet121", {"block_config": (2,) * 4, "growth_rate": 8}, 96),
    "dla": ("dla46x_c", {}, 96),
    "dpn": ("dpn48b", {}, 96),
    "edgenext": ("edgenext_xx_small", {}, 96),
    "efficientformer": ("efficientformer_l1", {"depths": (1,) * 4, "embed_dims": (16, 32, 48,
        64), "img_size": 64}, 224),
    "efficientformer_v2": ("efficientformerv2_s0", {"depths": (1,) * 4, "embed_dims": (16, 32,
        48, 64), "img_size": 64}, 64),
    "efficientnet": ("test_efficientnet", {}, 96),
    "efficientvim": ("efficientvim_m1", {"depths": (1,) * 3}, 96),
    "efficientvit_mit": ("efficientvit_b0", {"depths": (1,) * 4}, 96),
    "efficientvit_msra": ("efficientvit_m0", {"img_size": 64}, 64),
    "eva": ("vit_tiny_patch16_dinov3_qkvb", {"depth": 2, "embed_dim": 48, "img_size": 64}, 64),
    "fasternet": ("fasternet_t0", {"depths": (1,) * 4}, 96),
    "fastvit": ("fastvit_t8", {"layers": (1,) * 4}, 96),
    "focalnet": ("FocalNet", {"embed_dim": 16, "depths": (1,) * 4}, 64),
    "gcvit": ("gcvit_xxtiny", {"embed_dim": 16, "img_size": 64}, 64),
    "gemma4_vit": ("gemma4_vit_167m", {"embed_dim": 48, "depth": 2, "num_heads": 3, "img_size":
        64}, 64),
    "ghostnet": ("ghostnet_050", {}, 96),
    "hardcorenas": ("hardcorenas_b", {}, 96),
    "hgnet": ("hgnetv2_b0", {}, 96),
    "hiera": ("hiera_tiny_224", {"embed_dim": 24, "stages": (1, 1, 2, 1), "img_size": 64}, 64),
    "hieradet_sam2": ("sam2_hiera_tiny", {"embed_dim": 24, "stages": (1, 1, 2, 1)}, 96),
    "hrnet": ("hrnet_w18_small", {"stem_width": 8}, 96),
    "iformer": ("iformer_t", {"dims": (16, 32, 48, 64)}, 96),
    "inception_next": ("inception_next_atto", {"depths": (1,) * 4, "dims": (16, 32, 48, 64)},
        96),
    "inception_resnet_v2": ("inception_resnet_v2", {}, 96),
    "inception_v3": ("inception_v3", {}, 96),
    "inception_v4": ("inception_v4", {}, 96),
    "lcnetv2": ("lcnetv2_small", {"depths": (1,) * 4}, 96),
    "levit": ("Levit", {"img_size": 64, "embed_dim": (32, 48, 64), "key_dim": 16, "depth": (1,)
        * 3, "num_heads": (2, 3, 4)}, 64),
    "lowformer": ("lowformer_b0", {"width_list": (8, 8, 16, 32, 64)}, 96),
    "mambaout": ("test_mambaout", {}, 96),
    "maxxvit": ("test_coatnet", {"depths": (1,) * 4, "stem_width": 8, "img_size": 64}, 64),
    "metaformer": ("MetaFormer", {"depths": (1,) * 4, "dims": (16, 32, 48, 64)}, 64),
    "mlp_mixer": ("MlpMixer", {"img_size": 64, "embed_dim": 48, "num_blocks": 2}, 64),
    "mobilenetv3": ("lcnet_035", {}, 96),
    "mobilenetv5": ("mobilenetv5_base", {"channel_multiplier": 0.25}, 96),
    "mobilevit": ("mobilevit_xxs", {}, 96),
    "mvitv2": ("mvitv2_tiny", {"img_size": 64}, 64),
    "naflexvit": ("naflexvit_base_patch16_gap", {"embed_dim": 48, "depth": 2, "num_heads": 3},
        96),
    "nasnet": ("nasnetalarge", {"num_features": 480, "stem_size": 12}, 96),
    "nest": ("Nest", {"img_size": 64, "embed_dims": (24, 48, 96), "depths": (1, 1, 2),
        "num_heads": (1, 2, 4)}, 64),
    "nextvit": ("nextvit_small", {}, 96),
    "nfnet": ("test_nfnet", {}, 96),
    "pit": ("pit_ti_224", {"img_size": 64}, 64),
    "pnasnet": ("pnasnet5large", {}, 96),
    "pvt_v2": ("pvt_v2_b0", {"depths": (1,) * 4}, 96),
    "qwen3_vit": ("qwen3_vit_88m", {"embed_dim": 48, "depth": 2, "num_heads": 3}, 96),
    "rdnet": ("RDNet", {"num_init_features": 16, "growth_rates": (8,) * 4, "num_blocks_list":
        (2,) * 4, "block_type": ('Block',) * 4, "is_downsample_block": (None, True, True,
        True)}, 64),
    "regnet": ("regnetx_002", {"stem_width": 8}, 96),
    "repghost": ("repghostnet_050", {}, 96),
    "repvit": ("RepVit", {"embed_dim": (16, 24, 32, 48), "depth": (1,) * 4}, 64),
    "res2net": ("res2next50", {"layers": (1,) * 4}, 96),
    "resnest": ("resnest14d", {"stem_width": 8}, 96),
    "resnet": ("test_resnet", {}, 96),
    "resnetv2": ("resnetv2_18", {"layers": (1,) * 4, "width_factor": 0.25}, 96),
    "rexnet": ("rexnet_100", {}, 96),
    "selecsls": ("selecsls42", {}, 96),
    "senet": ("legacy_seresnet18", {"layers": (1,) * 4}, 96),
    "sequencer": ("sequencer2d_s", {"layers": (1,) * 4, "embed_dims": (24, 48, 48, 48),
        "hidden_sizes": (6, 12, 12, 12), "img_size": 64}, 64),
    "shvit": ("shvit_s1", {}, 96),
    "sknet": ("skresnet18", {"layers": (1,) * 4}, 96),
    "starnet": ("starnet_s050", {}, 96),
    "swiftformer": ("swiftformer_xs", {"layers": (1,) * 4, "embed_dims": (16, 32, 48, 64),
        "img_size": 64}, 64),
    "swin_transformer": ("swin_tiny_patch4_window7_224", {"embed_dim": 24, "depths": (2,) * 4,
        "img_size": 64}, 64),
    "swin_transformer_v2": ("swinv2_tiny_window8_256", {"embed_dim": 24, "depths": (2,) * 4,
        "img_size": 64}, 64),
    "swin_transformer_v2_cr": ("swinv2_cr_tiny_224", {"embed_dim": 24, "depths": (2,) * 4,
        "img_size": 64}, 64),
    "tiny_vit": ("tiny_vit_5m_224", {"depths": (1,) * 4}, 96),
    "tnt": ("tnt_s_patch16_224", {"embed_dim": 48, "inner_dim": 12, "depth": 2, "img_size": 64},
        64),
    "tresnet": ("tresnet_m", {"layers": (1,) * 4, "width_factor": 0.25}, 96),
    "twins": ("twins_svt_small", {"embed_dims": (16, 32, 64, 128), "depths": (1, 1, 1, 2),
        "img_size": 64}, 64),
    "vgg": ("vgg11", {"mlp_ratio": 0.02}, 96),
    "visformer": ("visformer_tiny", {"depth": 2, "embed_dim": 48, "img_size": 64}, 64),
    "vision_transformer": ("test_vit", {"depth": 2, "embed_dim": 48, "img_size": 64}, 64),
    "vision_transformer_hybrid": ("vit_tiny_r_s16_p8_224", {"depth": 2, "embed_dim": 48,
        "img_size": 64}, 64),
    "vision_transformer_relpos": ("test_vit_relpos", {"depth": 2, "embed_dim": 48, "img_size":
        64}, 64),
    "vision_transformer_sam": ("samvit_base_patch16_224", {"embed_dim": 48, "depth": 2,
        "num_heads": 3, "global_attn_indexes": [1], "img_size": 64}, 64),
    "vitamin": ("vitamin_small_224", {"depth": 2, "img_size": 64}, 64),
    "volo": ("VOLO", {"layers": (1,) * 4, "img_size": 64, "embed_dims": (24, 48, 48, 48),
        "num_heads": (2, 4, 4, 4), "patch_size": 8}, 64),
    "vovnet": ("ese_vovnet19b_slim_dw", {}, 96),
    "xception": ("legacy_xception", {}, 96),
    "xception_aligned": ("xception41p", {}, 96),
    "xcit": ("xcit_nano_12_p8_224", {"depth": 2, "embed_dim": 48, "num_heads": 3, "img_size":
        64}, 64),
}  # fmt: skip


def timm_networks() -> list[Network]:
    """One of every module of timm; of one that is not known here the first."""
    import timm

    modules = [module for module in timm.list_modules() if timm.list_models(module=module)]
    return [Network(m, *timm_network(timm, m)) for m in modules]


def timm_network(timm: Any, module: str) -> tuple[Callable[[], nn.Module], Callable[[], Tensor]]:
    """How to make it, and pictures for it."""
    first = (timm.list_models(module=module)[0], {}, 224)
    name, options, side = TIMM.get(module, first)

    def make() -> nn.Module:
        kind = getattr(import_module(f"timm.models.{module}"), name)
        is_class = isinstance(kind, type)
        made = kind if is_class else partial(timm.create_model, name)
        found: nn.Module = made(num_classes=10, **options)
        return found

    return make, normal(2, 3, side, side)


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
