"""Any message of a type, with what its fields allow and its senders would not."""

from google.protobuf.descriptor import FieldDescriptor
from hypothesis import strategies as st
from otlp_exports import NOW_MS, NOW_NS


def is_repeated(field):
    # Before version 6 of protobuf's library a field has only its label.
    return field.is_repeated if hasattr(field, "is_repeated") else field.label == LABEL_REPEATED


LABEL_REPEATED = 3


def messages(descriptor, depth=9):
    """Any message of a type, with what its fields allow and its senders would not."""

    @st.composite
    def build(draw):
        made = descriptor._concrete_class()
        for field in descriptor.fields:
            if not draw(st.booleans()):
                continue
            if field.message_type is not None and depth == 0:
                continue
            one = _values(field, depth)
            if is_repeated(field):
                found = draw(st.lists(one, max_size=2))
                if field.message_type is not None:
                    getattr(made, field.name).extend(found)
                else:
                    getattr(made, field.name)[:] = found
            elif field.message_type is not None:
                getattr(made, field.name).CopyFrom(draw(one))
            else:
                setattr(made, field.name, draw(one))
        return made

    return build()


times = st.sampled_from([0, 1, NOW_MS, NOW_NS - 24 * 3600 * 10**9, NOW_NS, NOW_NS + 1, 2**64 - 1])
SCALARS = {
    FieldDescriptor.TYPE_DOUBLE: st.floats(),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_STRING: st.text(max_size=6)
    | st.sampled_from(["service.name", "1", "By/s"]),
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=6),
    FieldDescriptor.TYPE_ENUM: st.integers(0, 4),
    FieldDescriptor.TYPE_FIXED64: times | st.integers(0, 2**64 - 1),
    FieldDescriptor.TYPE_UINT64: st.integers(0, 3) | st.integers(0, 2**64 - 1),
    FieldDescriptor.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_SFIXED64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.TYPE_FIXED32: st.integers(0, 2**32 - 1),
    FieldDescriptor.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_SINT32: st.integers(-(2**31), 2**31 - 1),
}


def _values(field, depth):
    if field.message_type is not None:
        return messages(field.message_type, depth - 1)
    return SCALARS[field.type]
