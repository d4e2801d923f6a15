"""A series' key stands for one name and one label map, and no others (C26)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahrules.threshold import Series, series_key

# Few signs, those of the encoding among them, so that near misses are common.
texts = st.text(st.sampled_from('a_1="\\,{}\nn '), max_size=4)
names = st.text(st.sampled_from('a_1="\\,{}\nn '), min_size=1, max_size=4)
series = st.tuples(names, st.dictionaries(texts, texts, max_size=3))


@given(st.lists(series, min_size=2, max_size=8))
def test_two_series_share_a_key_only_when_they_are_one_c26(found):
    for name, labels in found:
        for other_name, other_labels in found:
            same = (name, labels) == (other_name, other_labels)
            assert (series_key(name, labels) == series_key(other_name, other_labels)) is same


def read(key):
    """The inverse, written from the description alone: name, then pairs."""
    place = 0

    def word():
        nonlocal place
        if key[place] != '"':
            begin = place
            while place < len(key) and (key[place].isalnum() or key[place] == "_"):
                place += 1
            return key[begin:place]
        place += 1
        signs = []
        while key[place] != '"':
            sign = key[place]
            place += 1
            if sign == "\\":
                sign = {"n": "\n"}.get(key[place], key[place])
                place += 1
            signs.append(sign)
        place += 1
        return "".join(signs)

    name, labels = word(), {}
    while place < len(key):
        assert key[place] in "{,"
        place += 1
        label = word()
        assert key[place] == "="
        place += 1
        labels[label] = word()
        if key[place] == "}":
            place += 1
            break
    assert place == len(key)
    return name, labels


@given(st.text(), st.dictionaries(st.text(), st.text(), max_size=3))
def test_a_key_can_be_read_back_in_one_way_c26(name, labels):
    assert read(series_key(name, labels)) == (name, labels)


@given(st.dictionaries(texts, texts, max_size=4), st.randoms())
def test_the_order_of_labels_does_not_count(labels, rng):
    pairs = list(labels.items())
    rng.shuffle(pairs)
    assert series_key("cpu", dict(pairs)) == series_key("cpu", labels)


@pytest.mark.parametrize(
    ("name", "labels", "key"),
    [
        ("ah_cpu", {}, "ah_cpu"),
        ("ah_cpu", {"core": "0"}, 'ah_cpu{core="0"}'),
        ("ah_disk", {"mount": "/", "device": "sda"}, 'ah_disk{device="sda",mount="/"}'),
        ("cpu", {"a": ""}, 'cpu{a=""}'),
        ("cpu", {"a": 'x",b="y'}, r'cpu{a="x\",b=\"y"}'),
        ("cpu", {"a": "C:\\n\n"}, r'cpu{a="C:\\n\n"}'),
        ("cpu load", {"1st": "é"}, '"cpu load"{"1st"="é"}'),
        ("ñ", {}, '"ñ"'),
    ],
)
def test_keys_are_written_so(name, labels, key):
    assert series_key(name, labels) == key


def test_a_series_is_its_key_and_keeps_its_own_labels():
    labels = {"core": "0"}
    one = Series(name="cpu", labels=labels)
    labels["core"] = "1"
    assert one == Series(name="cpu", labels={"core": "0"})
    assert hash(one) == hash(Series(name="cpu", labels={"core": "0"}))
    assert one != Series(name="cpu", labels=labels)
    with pytest.raises(TypeError):
        one.labels["core"] = "2"
