"""What there is to set, section by section: types, defaults, limits, help. `config` makes a whole of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedpurin.errors import ConfigError
from fedpurin.settings import setting
from fedpurin.value_types import NAMES

VALUES = ("auto", *NAMES)
Partition = Literal["dirichlet", "dirichlet-disjoint", "classes", "iid"]
ENGINES = ("local", "ray", "flower", "inline")
DEFAULT_METHOD = "fedpurin"


@dataclass(frozen=True)
class RunSection:
    method: str = setting(DEFAULT_METHOD, "which method: a name, or package.module:Class")
    seed: int = setting(1, "fixes the split, the initial models and every mini-batch", least=0, most=2**31)
    split_seed: int = setting(-1, "who holds what; -1: as run.seed", least=-1, most=2**31)
    model_seed: int = setting(-1, "the initial models; -1: as run.seed", least=-1, most=2**31)
    order_seed: int = setting(-1, "the order of samples; -1: as run.seed", least=-1, most=2**31)
    rounds: int = setting(12, "communication rounds T", least=1, most=10**6)
    clients: int = setting(10, "number of clients N", least=1, most=10**6)
    participation: float = setting(1.0, "share of the clients that take part in a round", above=0, most=1)
    engine: str = setting("local", "what moves the messages: local, ray, flower, or inline (no processes)")
    workers: int = setting(0, "worker processes; 0: one per core", least=0)
    device: str = setting(
        "cpu", "cpu, cuda, mps or auto (cuda, else mps, else cpu); only cpu repeats to the byte"
    )
    share_metrics: bool = setting(True, "clients tell the server their accuracy and loss")
    checkpoint_every: int = setting(1, "rounds between checkpoints", least=1)
    save_models: Literal["all", "participants", "none"] = setting(
        "all", "whose final models are saved; participants: of those that took part in a round"
    )

    @property
    def split_seed_used(self) -> int:
        return self.seed if self.split_seed < 0 else self.split_seed

    @property
    def model_seed_used(self) -> int:
        return self.seed if self.model_seed < 0 else self.model_seed

    @property
    def order_seed_used(self) -> int:
        return self.seed if self.order_seed < 0 else self.order_seed


@dataclass(frozen=True)
class DataSection:
    dataset: str = setting(
        "fashion-mnist-mini", "data set, package.module:function, or own (each site its own)"
    )
    dir: str = setting("", "folder with the official files; empty: FEDPURIN_DATA or the user's cache")
    partition: Partition = setting("dirichlet", "who holds what")
    alpha: float = setting(0.1, "Dirichlet concentration; small means very different clients", above=0)
    classes_per_client: int = setting(2, "for partition = classes", least=1)
    train_samples: int = setting(200, "training samples per client", least=1)
    test_samples: int = setting(100, "test samples per client", least=1)
    split_file: str = setting("", "use the split saved in this file")
    validation: float = setting(
        0.0,
        "share of a client's training samples held out to choose its best model by; 0: none, keep the last",
        least=0,
        most=0.9,
    )
    shape: tuple[int, ...] = setting((), "for dataset = own: shape of one sample, e.g. [3, 32, 32]")
    classes: int = setting(0, "for dataset = own: number of classes", least=0)
    class_names: tuple[str, ...] = setting((), "for dataset = own: the classes, in order")


@dataclass(frozen=True)
class ModelSection:
    name: str = setting("cnn", "resnet8, resnet10, cnn, mlp, or package.module:function")
    head: str = setting("", "module that is the classifier; empty: the last linear layer")


@dataclass(frozen=True)
class TrainSection:
    epochs: int = setting(5, "local epochs E per round", least=1)
    batch_size: int = setting(50, "samples per mini-batch", least=1)
    lr: float = setting(0.1, "learning rate", above=0)
    momentum: float = setting(0.9, "SGD momentum, new every round", least=0, most=1)
    weight_decay: float = setting(0.0, "weight decay", least=0)
    optimiser: Literal["sgd", "adam", "adamw", "python"] = setting("sgd", "new every round")
    loss: Literal["cross_entropy", "mse", "bce", "python"] = setting(
        "cross_entropy", "what is minimised; others than cross_entropy for data passed from Python"
    )
    metric: Literal["auto", "accuracy", "r2", "label_accuracy", "python"] = setting(
        "auto", "what is measured, the higher the better; auto: the usual one for the loss"
    )
    precision: Literal["float32", "bfloat16"] = setting(
        "float32", "of the model's arithmetic; bfloat16: mixed, weights and messages stay as they are"
    )


@dataclass(frozen=True)
class WireSection:
    values: str = setting(
        "auto", "type of the values on the wire; auto: what the method is made for", choices=VALUES
    )
    pack: bool = setting(False, "lossless packing (byte planes and zstd) where it is smaller")
    feedback: bool = setting(False, "add the rounding error of the round before (lossy types)")


@dataclass(frozen=True)
class RobustSection:
    norm_bound: float = setting(
        0.0,
        "an upload lies at most this many times as far out as the median of its round; 0: off",
        least=0,
        most=10**9,
    )
    sample_bound: float = setting(
        0.0,
        "a sample count weighs at most this many times the median of its round; 0: off",
        least=0,
        most=10**9,
    )
    trim: float = setting(
        0.0,
        "share of the clients left out at either end of each coordinate's mean; 0: off",
        least=0,
        most=0.49,
    )

    def __post_init__(self) -> None:
        for name in ("norm_bound", "sample_bound"):
            if 0 < getattr(self, name) < 1:
                raise ConfigError(
                    f"robust.{name} = {getattr(self, name)} is below the median itself; "
                    "choose 1 or more (2 or 3 are usual), or 0 to switch it off"
                )


SECTIONS: dict[str, type] = {
    "run": RunSection,
    "data": DataSection,
    "model": ModelSection,
    "train": TrainSection,
    "wire": WireSection,
    "robust": RobustSection,
}
