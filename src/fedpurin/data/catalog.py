"""The data sets this package knows: which files they are made of and what is in them.

Imports nothing heavy, so that the command line can list names without loading torch or numpy.

The SHA-256 sums are over the decompressed content of each file. A gzip header may differ from copy to copy
(it holds a file name and a time), the images and labels may not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

DEFAULT = "fashion-mnist-mini"


@dataclass(frozen=True)
class FileSpec:
    name: str
    split: Literal["train", "test"]
    kind: Literal["images", "labels", "records"]  # two idx files, or CIFAR's records of label(s) and pixels
    count: int  # images or labels in this file
    sha256: str


@dataclass(frozen=True)
class DatasetSpec:
    """One data set in its official on-disk format."""

    name: str
    folder: str  # below the data directory
    shape: tuple[int, int, int]  # channels, height, width
    classes: tuple[str, ...]
    files: tuple[FileSpec, ...]
    label_bytes: int = 1  # per CIFAR record; the class is the last of them
    archive: str | None = None  # the official .tar.gz that holds the folder
    url: str = ""  # where the files, or the archive, are published
    bundled: Path | None = None  # the folder itself, for a set that comes with the package
    about: str = ""

    def count(self, split: str) -> int:
        return sum(f.count for f in self.files if f.split == split and f.kind != "labels")

    def size(self, spec: FileSpec) -> int:
        """Bytes of the file once decompressed."""
        channels, height, width = self.shape
        pixels = channels * height * width
        if spec.kind == "images":
            return 16 + spec.count * pixels
        if spec.kind == "labels":
            return 8 + spec.count
        return spec.count * (self.label_bytes + pixels)

    @property
    def remedy(self) -> str:
        if self.bundled is not None:
            return "install fedpurin again"
        return f"run `fedpurin data get {self.name}`, or name another folder with --data-dir"


def _idx(train: int, test: int, *sums: str) -> tuple[FileSpec, ...]:
    return (
        FileSpec("train-images-idx3-ubyte.gz", "train", "images", train, sums[0]),
        FileSpec("train-labels-idx1-ubyte.gz", "train", "labels", train, sums[1]),
        FileSpec("t10k-images-idx3-ubyte.gz", "test", "images", test, sums[2]),
        FileSpec("t10k-labels-idx1-ubyte.gz", "test", "labels", test, sums[3]),
    )


def _records(*files: tuple[str, int, str]) -> tuple[FileSpec, ...]:
    """CIFAR's files: name, images, checksum."""
    return tuple(
        FileSpec(name, "test" if name.startswith("test") else "train", "records", count, sha256)
        for name, count, sha256 in files
    )


FASHION_CLASSES = (
    "T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip

CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip

_CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup
dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower
leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid
otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray
road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""
CIFAR100_CLASSES = tuple(_CIFAR100.split())

MINI = DatasetSpec(
    name=DEFAULT,
    folder="bundled",
    shape=(1, 28, 28),
    classes=FASHION_CLASSES,
    # made by scripts/make_bundled.py
    files=_idx(
        6000,
        1500,
        "cf313073c7eb485392848071d5c433571d7166043e971e3345b095cc30518084",
        "097b93fbcf9bd5bc648b1a457ddc55c9e4ab49afb33f9ecae8ce068399a75e3a",
        "45c4764f8a659ca03d447bd4439d308a4753d94dfae1c3d2509592de41e5a6cc",
        "777545b00a2a01940e06c667dd7311da3ac72ff83fa9f4641eaae2438cc26ee9",
    ),
    bundled=Path(__file__).parent / "bundled",
    about="a balanced sample of Fashion-MNIST that comes with the package",
)

FASHION_MNIST = DatasetSpec(
    name="fashion-mnist",
    folder="fashion-mnist",
    shape=(1, 28, 28),
    classes=FASHION_CLASSES,
    files=_idx(
        60000,
        10000,
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    about="Zalando's clothes, grey, 31 MB to download",
)

CIFAR_10 = DatasetSpec(
    name="cifar-10",
    folder="cifar-10-batches-bin",
    shape=(3, 32, 32),
    classes=CIFAR10_CLASSES,
    files=_records(
        ("data_batch_1.bin", 10000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
        ("data_batch_2.bin", 10000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
        ("data_batch_3.bin", 10000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
        ("data_batch_4.bin", 10000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
        ("data_batch_5.bin", 10000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
        ("test_batch.bin", 10000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
    ),
    archive="cifar-10-binary.tar.gz",
    url="https://www.cs.toronto.edu/~kriz/",
    about="colour photographs, binary version, 170 MB to download",
)

CIFAR_100 = DatasetSpec(
    name="cifar-100",
    folder="cifar-100-binary",
    shape=(3, 32, 32),
    classes=CIFAR100_CLASSES,
    files=_records(
        ("train.bin", 50000, "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
        ("test.bin", 10000, "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
    ),
    label_bytes=2,  # coarse, then fine; the fine label is the class
    archive="cifar-100-binary.tar.gz",
    url="https://www.cs.toronto.edu/~kriz/",
    about="colour photographs, binary version, fine labels, 169 MB to download",
)

SOURCES = {s.name: s for s in (MINI, FASHION_MNIST, CIFAR_10, CIFAR_100)}
NAMES = tuple(SOURCES)
