"""Blocks in the manner of other libraries, for which shrink has no rules of their own."""

import math

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS = 16, 4


class NormAct(nn.BatchNorm2d):
    """A norm with its activation inside."""

    def __init__(self, channels):
        super().__init__(channels)
        self.drop, self.act = nn.Identity(), nn.ReLU(inplace=True)

    def forward(self, x):
        x = F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.1, self.eps
        )
        return self.act(self.drop(x))


class ConvNormAct(nn.Module):
    def __init__(self, inputs, outputs, **options):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False, **options)
        self.bn = NormAct(outputs)

    def forward(self, x, shortcut=None):
        x = self.bn(self.conv(x))
        return x if shortcut is None else x + shortcut


class ResidualNet(nn.Module):
    """Keyword arguments, a loop, and a branch that depends on a size."""

    def __init__(self):
        super().__init__()
        self.stem = ConvNormAct(3, 12)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"a": ConvNormAct(12, 24), "b": ConvNormAct(24, 12)}) for _ in range(2)
        )
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block["b"](block["a"](x), shortcut=x)
        if x.shape[-1] > 4:
            x = F.avg_pool2d(x, 2)
        return self.head(x.mean(dim=(2, 3)))


class Scaled(nn.Module):
    """ConvNeXt's block: depthwise, layer norm, two linear layers and a scale of each channel."""

    def __init__(self, width=12):
        super().__init__()
        self.stem, self.depth = (
            nn.Conv2d(3, width, 2, 2),
            nn.Conv2d(width, width, 3, 1, 1, groups=width),
        )
        self.norm, self.gamma = nn.LayerNorm(width), nn.Parameter(torch.rand(width))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        x = self.stem(x)
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        y = self.gamma * self.down(F.gelu(self.up(y)))
        return self.head((x + y.permute(0, 3, 1, 2)).mean([-2, -1]))


class Temporal(nn.Module):
    """Causal convolutions with weight norm, of which the last places are cut off."""

    def __init__(self, normalise):
        super().__init__()
        self.first = normalise(nn.Conv1d(3, 12, 3, padding=4, dilation=2))
        self.second = normalise(nn.Conv1d(12, 12, 3, padding=4, dilation=2))
        self.down, self.head = nn.Conv1d(3, 12, 1), nn.Linear(12, 3)

    def forward(self, x):
        y = F.relu(self.first(x)[:, :, :-4].contiguous())
        y = F.relu(self.second(y)[:, :, :-4])
        return self.head(F.relu(y + self.down(x))[:, :, -1])


class UNet(nn.Module):
    """Instance norms after biased convolutions, a skip, a transposed convolution."""

    def __init__(self):
        super().__init__()
        self.down, self.inner = nn.Conv2d(1, 8, 3, 2, 1), nn.Conv2d(8, 16, 3, 1, 1)
        self.up, self.last = nn.ConvTranspose2d(24, 8, 2, 2), nn.Conv2d(8, 2, 1)
        self.norms = nn.ModuleList([nn.InstanceNorm2d(8), nn.InstanceNorm2d(16, affine=True)])
        self.act = nn.PReLU(16)

    def forward(self, x):
        x = F.leaky_relu(self.norms[0](self.down(x)))
        x = torch.cat([x, self.act(self.norms[1](self.inner(x)))], dim=1)
        return self.last(F.relu(self.up(x)))


class Mlp(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Fused(nn.Module):
    """One projection for queries, keys and values, which a reshape takes apart (timm)."""

    def __init__(self, width=WIDTH, heads=HEADS, fast=True):
        super().__init__()
        self.num_heads, self.head_dim, self.fast = heads, width // heads, fast
        self.attn_dim, self.scale = width, self.head_dim**-0.5
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(self.head_dim)

    def forward(self, x):
        batch, tokens, _ = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.num_heads, self.head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        q, k = self.norm(q), self.norm(k)
        if self.fast:
            x = F.scaled_dot_product_attention(q, k, v)
        else:
            x = F.dropout((self.scale * q @ k.transpose(-2, -1)).softmax(dim=-1), 0.1, False) @ v
        return self.proj(x.transpose(1, 2).reshape(batch, tokens, self.attn_dim))


class Separate(nn.Module):
    """Three projections, and no number of heads that is read (BERT)."""

    def __init__(self, width=WIDTH, heads=HEADS):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.num_attention_heads, self.attention_head_size = heads, width // heads
        self.output = nn.Linear(width, width)

    def forward(self, x):
        shape = (*x.shape[:-1], -1, self.attention_head_size)
        q, k, v = (
            layer(x).view(shape).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.attention_head_size)
        x = torch.matmul(F.softmax(scores, dim=-1), v).permute(0, 2, 1, 3).contiguous()
        return self.output(x.view(*x.shape[:-2], -1))


class Split(nn.Module):
    """A projection whose weight lies transposed, and a split by a number (GPT-2)."""

    def __init__(self, width=WIDTH, heads=HEADS):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, 3 * width) / 4)
        self.bias = nn.Parameter(torch.randn(3 * width))
        self.split_size, self.head_dim = width, width // heads
        self.out = nn.Linear(width, width)
        mask = torch.ones(9, 9, dtype=torch.bool).tril().view(1, 1, 9, 9)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        made = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        q, k, v = made.view(*x.shape[:-1], -1).split(self.split_size, dim=2)
        q, k, v = (t.view(*t.shape[:-1], -1, self.head_dim).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.mT / self.head_dim**0.5
        hidden = torch.full([], torch.finfo(x.dtype).min)
        scores = torch.where(self.mask[:, :, : x.shape[1], : x.shape[1]], scores, hidden)
        x = torch.matmul(scores.softmax(-1), v).transpose(1, 2)
        return self.out(x.reshape(*x.shape[:-2], -1).contiguous())


class Rotary(nn.Module):
    """Turned queries and keys, of which each is for two heads of queries (Llama)."""

    def __init__(self, width=WIDTH, heads=HEADS):
        super().__init__()
        self.head_dim, self.groups = width // heads, 2
        self.q_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(width, width // 2, bias=False) for _ in range(2))
        self.register_buffer("inv_freq", 0.5 ** torch.arange(self.head_dim // 2))

    def turned(self, x, cos, sin):
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin

    def several(self, x):
        batch, heads, tokens, each = x.shape
        x = x[:, :, None].expand(batch, heads, self.groups, tokens, each)
        return x.reshape(batch, heads * self.groups, tokens, each)

    def forward(self, x):
        shape = (*x.shape[:-1], -1, self.head_dim)
        q, k, v = (
            p(x).view(shape).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        angles = torch.arange(x.shape[1]).float()[:, None] * self.inv_freq[None]
        angles = torch.cat((angles, angles), dim=-1)
        q, k = (self.turned(t, angles.cos(), angles.sin()) for t in (q, k))
        x = F.scaled_dot_product_attention(q, self.several(k), self.several(v), is_causal=True)
        return self.o_proj(x.transpose(1, 2).reshape(*x.shape[:1], x.shape[2], -1))


class Biased(nn.Module):
    """A table of biases, one column for each head (Swin)."""

    def __init__(self, width=WIDTH, heads=HEADS, tokens=5):
        super().__init__()
        self.num_heads, self.tokens = heads, tokens
        self.table = nn.Parameter(torch.randn(2 * tokens - 1, heads))
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        places = torch.arange(tokens)
        self.register_buffer("index", places[:, None] - places[None] + tokens - 1)

    def forward(self, x):
        batch, tokens, _ = x.shape
        qkv = self.qkv(x).view(batch, tokens, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        bias = self.table[self.index.view(-1)].view(tokens, tokens, -1).permute(2, 0, 1)
        scores = q @ k.transpose(-2, -1) + bias.contiguous().unsqueeze(0)
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Torch(nn.Module):
    """torch's own layer."""

    def __init__(self, width=WIDTH, heads=HEADS, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, **{"batch_first": True} | options)

    def forward(self, x):
        return self.attention(x, x, x)[0]


class Transformer(nn.Module):
    """Normalised attention and a two-layer network, each added to its input."""

    def __init__(self, attention):
        super().__init__()
        self.embed, self.positions = nn.Linear(6, WIDTH), nn.Parameter(torch.randn(1, 5, WIDTH))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.attention, self.mlp, self.head = attention(), Mlp(), nn.Linear(WIDTH, 3)

    def forward(self, x):
        x = self.embed(x) + self.positions
        x = x + self.attention(self.norms[0](x))
        x = x + self.mlp(self.norms[1](x))
        return self.head(self.norms[2](x)[:, 0])
