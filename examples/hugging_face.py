"""A transformer that knows how sure it is, trained by the Trainer of Hugging Face.

Needs `pip install transformers accelerate`. The network here is tiny and begins at random; with
`AutoModelForSequenceClassification.from_pretrained(...)` everything else is the same.

    python examples/hugging_face.py
"""

from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import pocketbayes as pb

CONFIG = BertConfig(
    vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=64, max_position_embeddings=16, num_labels=2,
)  # fmt: skip


class BayesianTrainer(Trainer):
    """A Trainer with the loss and the parameter groups of `fit`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.model_accepts_loss_kwargs = False  # so that it divides by accumulated batches itself

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, **_: Any
    ) -> Any:
        """NLL plus beta / N KL; N is the number of training examples."""
        labels = inputs["labels"]
        outputs = model(**{name: value for name, value in inputs.items() if name != "labels"})
        if not model.training:  # the KL grows with progress: the NLL alone judges epochs
            loss = torch.nn.functional.cross_entropy(outputs.logits, labels)
            return (loss, outputs) if return_outputs else loss
        passed = self.state.global_step / max(1, self.state.max_steps)
        size = len(self.train_dataset)
        loss = pb.loss(model, outputs, labels, size, progress=min(1.0, passed))
        return (loss, outputs) if return_outputs else loss

    def create_optimizer(self, *_: Any) -> torch.optim.Optimizer:
        """Log-stds have no weight decay and a rate of their own, which the schedule scales."""
        groups = pb.parameter_groups(
            self.model, lr=self.args.learning_rate, weight_decay=self.args.weight_decay
        )
        self.optimizer = torch.optim.AdamW(groups)
        return self.optimizer


def sentences(count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Rows of words; the label says whether the first is in the second half of the vocabulary."""
    words = torch.randint(2, 50, (count, 8), generator=torch.Generator().manual_seed(seed))
    return [{"input_ids": row, "labels": (row[0] > 25).long()} for row in words]


def main(epochs: float = 15, file: str = "bert.pocket", folder: str = "hf") -> pb.Record:
    """Trains, stores, loads, and measures what came back."""
    model = pb.bayesianize_(BertForSequenceClassification(CONFIG))
    arguments = TrainingArguments(
        folder, num_train_epochs=epochs, per_device_train_batch_size=32, learning_rate=2e-3,
        lr_scheduler_type="cosine", warmup_steps=20, save_strategy="no", report_to="none",
        disable_tqdm=True, use_cpu=not torch.cuda.is_available(),
    )  # fmt: skip
    BayesianTrainer(model, arguments, train_dataset=sentences(1000, 0)).train()
    pb.save(model, file)
    again = pb.load(file, BertForSequenceClassification(CONFIG))
    loader = torch.utils.data.DataLoader(sentences(500, 1), batch_size=100)
    return pb.evaluate(again, loader)


if __name__ == "__main__":
    print(main())
