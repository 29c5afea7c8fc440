//! Protocol Buffers, as far as writing needs them: <https://protobuf.dev/programming-guides/encoding>.

/// The fields of a message, encoded.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// A number; `int64` and enumerations of ONNX have no negative ones here.
    pub(super) fn number(mut self, field: u32, value: u64) -> Self {
        self.tag(field, 0);
        self.varint(value);
        self
    }

    /// Several numbers under one field.
    pub(super) fn numbers(self, field: u32, values: &[usize]) -> Self {
        values.iter().fold(self, |message, &value| message.number(field, value as u64))
    }

    /// A 32-bit float.
    pub(super) fn float(mut self, field: u32, value: f32) -> Self {
        self.tag(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Text.
    pub(super) fn text(self, field: u32, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    /// Another message.
    pub(super) fn message(self, field: u32, message: Message) -> Self {
        self.bytes(field, &message.0)
    }

    /// Bytes as they are.
    pub(super) fn bytes(mut self, field: u32, bytes: &[u8]) -> Self {
        self.tag(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    /// The message in bytes.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn tag(&mut self, field: u32, kind: u32) {
        self.varint((field << 3 | kind).into());
    }

    /// Seven bits a byte, the lowest first; the eighth says that more follow.
    fn varint(&mut self, mut value: u64) {
        while value > 0x7f {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the format's description.
    #[test]
    fn encodes_as_the_format_says() {
        assert_eq!(Message::default().number(1, 150).into_bytes(), [0x08, 0x96, 0x01]);
        assert_eq!(Message::default().text(2, "testing").into_bytes(), *b"\x12\x07testing");
        let inner = Message::default().number(1, 150);
        assert_eq!(Message::default().message(3, inner).into_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(Message::default().float(1, 1.0).into_bytes(), [0x0d, 0, 0, 0x80, 0x3f]);
        assert_eq!(Message::default().numbers(8, &[1, 300]).into_bytes(), [0x40, 1, 0x40, 0xac, 2]);
    }
}
