"""One training step, recorded at two batch sizes: the same operators, and bytes that are affine in the batch."""
import dataclasses
import gzip
import json

from measure.training import Failure

SAME_IN_BOTH = (("ops", ("use_count", "replayable")), ("uses", ("value", "writes")),
                ("values", ("birth", "death", "becomes", "class")))


@dataclasses.dataclass
class Value:
    """A storage of the step; -1 as in profile files."""

    bytes: tuple  # At the two batches.
    birth: int
    death: int
    becomes: int
    family: int


@dataclasses.dataclass
class Operator:
    name: str
    signature: str
    is_replayable: bool
    uses: list  # Of (value, writes).
    births: list = dataclasses.field(default_factory=list)
    weight: tuple = ()  # Kind and sizes of the layer's weight, of operators that multiply by one.


def names_of(profile):
    return [profile["kinds"]["name"][kind] for kind in profile["ops"]["kind"]]


def joined(profiles, batches, weights):
    """What the repository keeps of two profiles (dicts) of one network. Refuses steps that differ in more than
    bytes and times."""
    first, second = profiles
    if names_of(first) != names_of(second):
        raise Failure(
            f"batches {batches[0]} and {batches[1]} run different operators ({len(first['ops']['kind'])} and "
            f"{len(second['ops']['kind'])}): take another --min-storage, "
            "so that no value is recorded in only one of them"
        )
    for group, columns in SAME_IN_BOTH:
        for column in columns:
            if first[group][column] != second[group][column]:
                raise Failure(
                    f"batches {batches[0]} and {batches[1]} differ in {group}.{column}: their steps are not the same"
                )
    kinds = sorted(set(names_of(first)))
    number = {name: place for place, name in enumerate(kinds)}
    return {
        "batches": batches,
        "weights": weights,
        "origin": first["origin"],
        "classes": first["classes"],
        "small_bytes": max(profile["small_bytes"] for profile in profiles),
        "kinds": kinds,
        "ops": {
            "kind": [number[name] for name in names_of(first)],
            "signature": first["ops"]["signature"],
            **{
                column: first["ops"][column]
                for column in ("use_count", "replayable")
            }
        },
        "uses": first["uses"],
        "values": {
            **{
                column: first["values"][column]
                for column in ("birth", "death", "becomes", "class")
            }, "bytes": [profile["values"]["bytes"] for profile in profiles]
        }
    }


def save(path, record):
    text = json.dumps(record, separators=(",", ":"), sort_keys=True)
    path.write_bytes(gzip.compress(text.encode("ascii"), mtime=0))  # Equal records give equal files.


class RecordedStep:
    """The operators and values of a record, and their bytes at any batch."""
    def __init__(self, record):
        self.batches, self.origin, self.classes = record["batches"], record["origin"], record["classes"]
        self.small_bytes = record["small_bytes"]
        columns = record["values"]
        self.values = [
            Value(*fields) for fields in zip(zip(
                *columns["bytes"]), columns["birth"], columns["death"], columns["becomes"], columns["class"])
        ]
        uses = iter(zip(record["uses"]["value"], record["uses"]["writes"]))
        ops = record["ops"]
        self.operators = [
            Operator(record["kinds"][kind], signature, bool(replayable),
                     [next(uses) for _ in range(count)]) for kind, signature, replayable, count in zip(
                         ops["kind"], ops["signature"], ops["replayable"], ops["use_count"])
        ]
        for number, value in enumerate(self.values):
            if value.birth >= 0:
                self.operators[value.birth].births.append(number)
        self.assign_weights([tuple(weight) for weight in record["weights"]])

    @classmethod
    def load(cls, path):
        return cls(json.loads(gzip.decompress(path.read_bytes())))

    def bytes_at(self, value, batch):
        """Exact: what does not grow by whole bytes per image is refused."""
        (small, large), (first, second) = self.values[value].bytes, self.batches
        if large < small or (large - small) % (second - first):
            raise Failure(
                f"value {value} has {small} bytes at batch {first} and {large} at {second}: not affine in the batch"
            )
        return small + (large - small) // (second - first) * (batch - first)

    def assign_weights(self, weights):
        """Convolutions run in the order of `weights`, (kind, sizes…), and backward in the opposite one."""
        layers = [weight for weight in weights if weight[0] != "linear"]
        forward = [op for op in self.operators if op.name == "aten::convolution"]
        backward = [op for op in self.operators if op.name == "aten::convolution_backward"]
        if not len(layers) == len(forward) == len(backward):
            raise Failure(
                f"{len(layers)} convolutions, but {len(forward)} operators in forward and {len(backward)} in backward"
            )
        by_value = {}
        for op, weight in zip(forward, layers):
            op.weight = weight
            for value, _ in op.uses:
                if self.values[value].birth == -1 and self.values[value].bytes[0] == 4 * elements(weight[1:]):
                    by_value[value] = weight
        for op, weight in zip(backward, reversed(layers)):
            op.weight = next((by_value[value] for value, _ in op.uses if value in by_value), weight)
        if [op.weight for op in backward] != layers[::-1]:
            raise Failure("backward does not run the convolutions in the opposite order of forward")
        # Who multiplies by the weight of a linear layer uses it or makes its gradient.
        linear = {4 * elements(weight[1:]): weight for weight in weights if weight[0] == "linear"}
        for op in self.operators:
            if op.name in ("aten::mm", "aten::addmm"):
                near = [value for value, _ in op.uses] + op.births
                op.weight = next(
                    (linear[self.values[value].bytes[0]]
                     for value in near if self.values[value].bytes[0] == self.values[value].bytes[1]
                     and self.values[value].bytes[0] in linear), ())


def elements(sizes):
    product = 1
    for size in sizes:
        product *= size
    return product
