"""Networks of smaller libraries for zoo.py: pictures, volumes, tables, sequences, fields."""

from collections.abc import Callable
from importlib import import_module
from pkgutil import resolve_name
from typing import Any

import torch
from torch import nn
from zoo_networks import Network, normal, words

Line = tuple[str, Callable[[], nn.Module], Callable[[], Any]]


def new(path: str, *args: Any, **options: Any) -> Callable[[], Any]:
    """Makes an object of a class that is imported by then; so of options that are made alike."""

    def make() -> Any:
        said = {
            name: value() if hasattr(value, "path") else value for name, value in options.items()
        }
        return resolve_name(path)(*args, **said)

    make.path = path  # type: ignore[attr-defined]
    return make


FLAT, VOLUME, PICTURE = normal(2, 1, 32, 32), normal(1, 1, 32, 32, 32), normal(2, 3, 32, 32)
ROWS, SERIES, SIGNAL, FIELD = (
    normal(6, 5),
    normal(2, 12, 16),
    normal(2, 4, 20),
    normal(2, 1, 16, 16),
)
NOISY, TIMES = normal(2, 4, 16, 16), torch.tensor([3, 8])

PLANE = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}
SCALES = {"channels": (4, 8, 16), "strides": (2, 2)}
CODER = {"channels": (4, 8), "strides": (2, 2)}
DOWN, UP = ((2, 4, 1, 1),) * 2, ((2, 4, 1, 1, 0),) * 2
CLASSES = {"spatial_dims": 2, "in_channels": 1, "num_classes": 2}
NETS = "monai.networks.nets"
MONAI: list[Line] = [
    ("UNet", new(f"{NETS}.UNet", **PLANE, **SCALES, num_res_units=1), FLAT),
    ("UNet, volumes", new(f"{NETS}.UNet", 3, 1, 2, **SCALES), VOLUME),
    ("BasicUNet", new(f"{NETS}.BasicUNet", 2, 1, 2, (4, 4, 8, 8, 8, 4)), FLAT),
    ("AttentionUnet", new(f"{NETS}.AttentionUnet", 2, 1, 2, **SCALES), FLAT),
    ("SegResNet",
     new(f"{NETS}.SegResNet", 2, 4, 1, 2, norm=("GROUP", {"num_groups": 2})), FLAT),
    ("DynUNet", new(f"{NETS}.DynUNet", 2, 1, 2, [3] * 3, [1, 2, 2], [2, 2], [4, 8, 16]), FLAT),
    ("UNETR", new(f"{NETS}.UNETR", 1, 2, (32, 32), 4, 24, 48, 3, spatial_dims=2), FLAT),
    ("SwinUNETR", new(f"{NETS}.SwinUNETR", 1, 2, feature_size=12, spatial_dims=2),
     normal(2, 1, 64, 64)),
    ("ViT", new(f"{NETS}.ViT", 1, (32, 32), (8, 8), 24, 48, 2, 3, "conv", "learnable", True, 2,
                spatial_dims=2), FLAT),
    ("AutoEncoder", new(f"{NETS}.AutoEncoder", **PLANE, **CODER), FLAT),
    ("VarAutoEncoder", new(f"{NETS}.VarAutoEncoder", 2, (1, 32, 32), 1, 4, **CODER), FLAT),
    ("HighResNet", new(f"{NETS}.HighResNet", 2, 1, 8), FLAT),
    ("DenseNet", new(f"{NETS}.DenseNet", **PLANE, block_config=(2, 2), init_features=8), FLAT),
    ("EfficientNetBN", new(f"{NETS}.EfficientNetBN", "efficientnet-b0", False, **CLASSES), FLAT),
    ("ResNet", new(f"{NETS}.ResNet", "basic", [1] * 4, [4, 8, 8, 8], 2, 1, num_classes=2), FLAT),
    ("Regressor", new(f"{NETS}.Regressor", (1, 32, 32), (2,), (4, 8), (2, 2)), FLAT),
    ("DiffusionModelUNet", new(
        f"{NETS}.DiffusionModelUNet", 2, 1, 1, 1, (8, 8), (False, True), norm_num_groups=4,
        num_head_channels=4), lambda: (FLAT(), TIMES)),
    ("AutoencoderKL", new(f"{NETS}.AutoencoderKL", 2, 1, 1, (1, 1), (8, 8), (False, True),
                          norm_num_groups=4), FLAT),
    ("VQVAE", new(f"{NETS}.VQVAE", 2, 1, 1, (8, 8), 1, (4, 4), DOWN, UP, num_embeddings=9), FLAT),
    ("MedNeXt", new(f"{NETS}.MedNeXt", 2, 4, 1, 2), FLAT),
    ("FullyConnectedNet", new(f"{NETS}.FullyConnectedNet", 5, 2, (8, 8)), ROWS),
]  # fmt: skip

DECODERS = (
    "Unet", "UnetPlusPlus", "MAnet", "Linknet", "FPN", "PSPNet", "PAN", "DeepLabV3",
    "DeepLabV3Plus", "UPerNet", "Segformer",
)  # fmt: skip
SEGMENTATION: list[Line] = [
    (name, new(f"segmentation_models_pytorch.{name}", "mobileone_s0", encoder_weights=None,
               classes=2), normal(2, 3, 128, 128))
    for name in DECODERS
]  # fmt: skip

PATCHES = {"image_size": 32, "patch_size": 8, "num_classes": 4, "dim": 16, "depth": 2,
           "heads": 2, "mlp_dim": 24}  # fmt: skip
VIT: list[Line] = [
    ("ViT", new("vit_pytorch.ViT", **PATCHES), PICTURE),
    ("SimpleViT", new("vit_pytorch.SimpleViT", **PATCHES), PICTURE),
    ("DeepViT", new("vit_pytorch.deepvit.DeepViT", **PATCHES), PICTURE),
    ("CaiT", new("vit_pytorch.cait.CaiT", **PATCHES, cls_depth=1), PICTURE),
    ("CCT", new("vit_pytorch.cct.CCT", img_size=32, embedding_dim=16, num_layers=2, num_heads=2,
                num_classes=4), PICTURE),
    ("CvT", new("vit_pytorch.cvt.CvT", num_classes=4, s1_emb_dim=8, s2_emb_dim=8, s3_emb_dim=8,
                s3_depth=1), PICTURE),
    ("NesT", new("vit_pytorch.nest.NesT", image_size=32, patch_size=4, dim=8, heads=1,
                 num_hierarchies=2, block_repeats=(1, 1), num_classes=4), PICTURE),
    ("MaxViT", new("vit_pytorch.max_vit.MaxViT", num_classes=4, dim=8, depth=(1,), window_size=4,
                   dim_head=4), PICTURE),
    ("ViViT", new("vit_pytorch.vivit.ViViT", image_size=16, image_patch_size=8, frames=4,
                  frame_patch_size=2, num_classes=4, dim=16, spatial_depth=1, temporal_depth=1,
                  heads=2, mlp_dim=24), normal(1, 3, 4, 16, 16)),
]  # fmt: skip


def stack(kind: str, **options: Any) -> Callable[[], nn.Module]:
    """A transformer of x_transformers over tokens."""
    layers = new(f"x_transformers.{kind}", dim=16, depth=2, heads=2, attn_dim_head=8, **options)
    return new(
        "x_transformers.TransformerWrapper", num_tokens=99, max_seq_len=32, attn_layers=layers
    )


X_TRANSFORMERS: list[Line] = [
    ("decoder", stack("Decoder"), words),
    ("encoder", stack("Encoder"), words),
    ("rotary", stack("Decoder", rotary_pos_emb=True, ff_glu=True, use_rmsnorm=True), words),
    ("ALiBi", stack("Decoder", alibi_pos_bias=True, attn_one_kv_head=True), words),
    ("memory", stack("Decoder", attn_num_mem_kv=2, attn_pre_talking_heads=True), words),
    ("sandwich", stack("Decoder", rel_pos_bias=True, sandwich_norm=True), words),
]

SEQUENCES: list[Line] = [
    ("TCN", new("pytorch_tcn.TCN", 4, [8, 8], kernel_size=3), SIGNAL),
    ("TCN, causal", new("pytorch_tcn.TCN", 4, [8, 8], causal=True, use_norm="batch_norm"), SIGNAL),
    ("TCN, gated", new("pytorch_tcn.TCN", 4, [8, 8], use_skip_connections=True, use_gate=True),
     SIGNAL),
    ("Conformer", new("conformer.Conformer", 16, depth=2, dim_head=8, heads=2), SERIES),
    ("Nystromformer", new("nystrom_attention.Nystromformer", dim=16, depth=2, heads=2, dim_head=8,
                          num_landmarks=4), SERIES),
    ("Performer", new("performer_pytorch.Performer", dim=16, depth=2, heads=2, dim_head=8), SERIES),
    ("Reformer", new("reformer_pytorch.Reformer", dim=16, depth=2, heads=2, bucket_size=4,
                     n_hashes=1), lambda: normal(2, 16, 16)().requires_grad_()),
    ("CfC", new("ncps.torch.CfC", 4, 8), normal(2, 6, 4)),
    ("LTC", new("ncps.torch.LTC", 4, 8), normal(2, 6, 4)),
    ("FNO", new("neuralop.models.FNO", (4, 4), 1, 1, 8, n_layers=2), FIELD),
    ("FNO, Tucker", new("neuralop.models.FNO", (4, 4), 1, 1, 8, n_layers=2, rank=0.5,
                        factorization="tucker"), FIELD),
]  # fmt: skip

TABLES: list[Line] = [
    ("FT-Transformer", new(
        "rtdl_revisiting_models.FTTransformer", n_cont_features=5, cat_cardinalities=[3], d_out=2,
        n_blocks=2, d_block=16, attention_n_heads=2, attention_dropout=0.0, ffn_d_hidden=16,
        ffn_dropout=0.0, residual_dropout=0.0, ffn_d_hidden_multiplier=None),
     lambda: (ROWS(), torch.arange(6).unsqueeze(1) % 3)),
    ("MLP", new("rtdl_revisiting_models.MLP", d_in=5, d_out=2, n_blocks=2, d_block=8, dropout=0.0),
     ROWS),
    ("ResNet", new("rtdl_revisiting_models.ResNet", d_in=5, d_out=2, n_blocks=2, d_block=8,
                   d_hidden=None, d_hidden_multiplier=2.0, dropout1=0.0, dropout2=0.0), ROWS),
    ("TabNet", new("pytorch_tabnet.tab_network.TabNet", 5, 2, n_d=4, n_a=4,
                   group_attention_matrix=torch.eye(5)), ROWS),
    ("TabM", new("tabm.TabM.make", n_num_features=5, d_out=2, k=4, n_blocks=2, d_block=8), ROWS),
    ("KAN", new("kan.KAN", width=[5, 4, 2], grid=3, k=3, auto_save=False), ROWS),
]  # fmt: skip

DENOISER = {
    "sample_size": 16,
    "in_channels": 4,
    "out_channels": 4,
    "layers_per_block": 1,
    "block_out_channels": (8, 8),
    "norm_num_groups": 4,
    "attention_head_dim": 4,
}
BLOCKS = {
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
}
CROSSED = {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "cross_attention_dim": 8,
           "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")}  # fmt: skip
UNETS = {
    "n_stages": 3,
    "features_per_stage": (4, 8, 8),
    "conv_op": nn.Conv2d,
    "kernel_sizes": 3,
    "strides": (1, 2, 2),
    "num_classes": 2,
    "norm_op": nn.InstanceNorm2d,
    "conv_bias": True,
    "n_conv_per_stage_decoder": 1,
    "nonlin": nn.ReLU,
    "norm_op_kwargs": {"affine": True},
}
NNUNET = "dynamic_network_architectures.architectures.unet"
SIGHT = new("open_clip.CLIPVisionCfg", layers=2, width=16, head_width=8, patch_size=8,
            image_size=32)  # fmt: skip
SPEECH = new("open_clip.CLIPTextCfg", context_length=12, vocab_size=99, width=16, heads=2, layers=2)
PICTURES: list[Line] = [
    ("UNet2DModel", new("diffusers.UNet2DModel", **DENOISER, **BLOCKS),
     lambda: {"sample": NOISY(), "timestep": TIMES}),
    ("UNet2DConditionModel", new("diffusers.UNet2DConditionModel", **DENOISER, **CROSSED),
     lambda: {"sample": NOISY(), "timestep": TIMES,
              "encoder_hidden_states": normal(2, 5, 8)()}),
    ("AutoencoderKL", new("diffusers.AutoencoderKL", block_out_channels=(8,), norm_num_groups=4,
                          latent_channels=2), normal(2, 3, 16, 16)),
    ("DiTTransformer2DModel", new(
        "diffusers.DiTTransformer2DModel", 2, 8, 4, 4, 2, norm_num_groups=4, sample_size=16,
        patch_size=4, num_embeds_ada_norm=9),
     lambda: {"hidden_states": NOISY(), "timestep": TIMES, "class_labels": TIMES % 2}),
    ("EfficientNet", new("efficientnet_pytorch.EfficientNet.from_name", "efficientnet-b0"),
     normal(2, 3, 64, 64)),
    ("CLIP", new("open_clip.CLIP", 16, vision_cfg=SIGHT, text_cfg=SPEECH),
     lambda: {"image": PICTURE(), "text": words()}),
    ("ImageEncoderViT", new(
        "segment_anything.modeling.ImageEncoderViT", 32, 8, embed_dim=16, depth=2, num_heads=2,
        out_chans=8, use_rel_pos=True, window_size=2, global_attn_indexes=(1,)), PICTURE),
    ("PlainConvUNet", new(f"{NNUNET}.PlainConvUNet", 1, **UNETS, n_conv_per_stage=1), FLAT),
    ("ResidualEncoderUNet", new(f"{NNUNET}.ResidualEncoderUNet", 1, **UNETS, n_blocks_per_stage=1),
     FLAT),
    ("SwinTransformer", new(
        "swin_transformer_pytorch.SwinTransformer", hidden_dim=8, layers=(2,) * 4, heads=(1,) * 4,
        head_dim=8, window_size=2, num_classes=4), normal(2, 3, 64, 64)),
]  # fmt: skip


def of_library(name: str) -> Callable[[], list[Network]]:
    """Its networks, once it is there."""

    def networks() -> list[Network]:
        import_module(name)
        return [Network(*line) for line in LINES[name]]

    return networks


LINES: dict[str, list[Line]] = {}
for line in [*MONAI, *SEGMENTATION, *VIT, *X_TRANSFORMERS, *SEQUENCES, *TABLES, *PICTURES]:
    LINES.setdefault(line[1].path.partition(".")[0], []).append(line)  # type: ignore[attr-defined]
LIBRARIES = {name: of_library(name) for name in LINES}
