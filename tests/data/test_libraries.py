"""Datasets of other libraries are sources without any adaptor."""

from __future__ import annotations

import numpy as np
import pytest

from cudasync import data


def test_a_dataset_of_pytorch_is_a_source():
    torch = pytest.importorskip("torch", reason="no PyTorch here")
    dataset = torch.utils.data.TensorDataset(torch.arange(6), torch.arange(6) * 2)
    for processes in (False, True):
        pipeline = data.source(dataset).map(tuple, processes=processes).batch(4).prefetch(1)
        batches = list(pipeline)
        assert [each.tolist() for each in batches[1]] == [[4, 5], [8, 10]]
    images = torch.utils.data.TensorDataset(torch.arange(4 * 512.0).reshape(4, 512))
    (found, *_) = data.source(images).map(tuple, processes=True)
    assert type(found[0]) is torch.Tensor
    assert found[0].tolist() == list(range(512))


def test_an_iterable_dataset_of_pytorch_is_a_source():
    torch = pytest.importorskip("torch", reason="no PyTorch here")

    class Counting(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(5))

    pipeline = data.source(Counting()).batch(2)
    assert [each.tolist() for each in pipeline] == [[0, 1], [2, 3], [4]]
    assert [each.tolist() for each in pipeline] == [[0, 1], [2, 3], [4]]


def test_a_dataset_of_hugging_face_is_a_source(tmp_path):
    datasets = pytest.importorskip("datasets", reason="no datasets of Hugging Face here")
    made = {"text": [f"word {n}" for n in range(7)], "label": list(range(7))}
    dataset = datasets.Dataset.from_dict(made)
    pipeline = data.source(dataset).shuffle(1)
    order = [each["label"] for each in pipeline]
    assert sorted(order) == list(range(7))
    found = list(data.source(dataset).map(dict, processes=True).batch(3))
    assert [each["label"].tolist() for each in found] == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(found[0]["text"]) == ["word 0", "word 1", "word 2"]
    streamed = data.source(dataset.to_iterable_dataset())
    assert [each["label"] for each in streamed] == list(range(7))
    list(pipeline.cache(tmp_path / "kept"))
    with pytest.raises(ValueError, match="another pipeline"):
        data.source(dataset.select(range(6))).shuffle(1).cache(tmp_path / "kept")


def test_a_memory_mapped_array_is_a_source_for_processes(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(6, 2))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = list(data.source(mapped).map(np.sum, processes=True).batch(6))
    assert found[0].tolist() == [1, 5, 9, 13, 17, 21]
