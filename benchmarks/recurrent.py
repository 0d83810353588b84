"""A recurrent network for image benchmarks: it reads an image row by row."""

from collections.abc import Sequence

from torch import Tensor, nn

from pocketbayes.models.registry import network


class RowReader(nn.Module):
    """An LSTM over the rows of an image; its last state is classified."""

    def __init__(self, features: int, width: int, depth: int, outputs: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, width, depth, batch_first=True)
        self.fc = nn.Linear(width, outputs)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, rows, columns) to (batch, outputs)."""
        rows = images.transpose(1, 2).flatten(2)
        states, _ = self.lstm(rows)
        return self.fc(states[:, -1])


@network("lstm")
def lstm(
    input_shape: Sequence[int] = (1, 28, 28),
    num_outputs: int = 10,
    width: int = 128,
    depth: int = 2,
) -> RowReader:
    """The network, under the name that `--model` takes."""
    channels, _, columns = input_shape
    return RowReader(channels * columns, width, depth, num_outputs)
