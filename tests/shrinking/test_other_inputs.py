"""What is cut by one example is right for others: other masks, other sizes."""

import pytest
import torch
from torch import nn

import pocketbayes as pb


class Attention(nn.Module):
    """Three heads, of which the values of two are constants; the mask is written into weights."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(12, 12) for _ in range(4))
        with torch.no_grad():
            self.v.weight[:8] = 0
            self.v.bias[:8] = torch.tensor([2.0, 1, 3, 1.5, 3, 4, 2, 3.3])

    def heads(self, x):
        return x.view(*x.shape[:2], 3, 4).transpose(1, 2)

    def forward(self, x, mask):
        weights = (self.heads(self.q(x)) @ self.heads(self.k(x)).mT).softmax(-1)
        weights.masked_fill_(mask[:, None, None, :], 0.0)
        return self.out((weights @ self.heads(self.v(x))).transpose(1, 2).flatten(2))


class Pooled(nn.Module):
    """Half of the channels are always 0; the logsumexp of n zeros is log n."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(16, 2)
        with torch.no_grad():
            self.conv.weight[:4] = 0
            self.conv.bias[:4] = 0

    def forward(self, x):
        t = self.conv(x).relu()
        return self.head(torch.cat([t.logsumexp((2, 3)), (t + 1).mean((2, 3))], 1))


def test_weights_of_attention_that_were_written_into_do_not_sum_to_one():
    torch.manual_seed(0)
    net, x = Attention().eval(), torch.randn(2, 5, 12)
    none = torch.zeros(2, 5, dtype=torch.bool)
    some = none.clone()
    some[:, 3:] = True
    small = pb.shrink(net, (x, none)).eval()
    for mask in (none, some):
        torch.testing.assert_close(small(x, mask), net(x, mask), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [8, 24])
def test_constants_that_depend_on_the_size_stay(size):
    torch.manual_seed(0)
    net = Pooled().eval()
    small = pb.shrink(net, torch.randn(2, 3, 8, 8)).eval()
    x = torch.randn(2, 3, size, size)
    torch.testing.assert_close(small(x), net(x), rtol=1e-4, atol=1e-4)
