//! The wire format, written: keys, lengths and varints.

/// A message under construction.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Message(pub Vec<u8>);

impl Message {
    /// Seven bits a byte, lowest first.
    pub fn varint(mut self, mut value: u64) -> Self {
        while 127 < value {
            self.0.push(value.to_le_bytes()[0] | 128);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
        self
    }

    /// The key of a field that has a length.
    pub fn key(self, number: u32) -> Self {
        self.varint(u64::from(number) << 3 | 2)
    }

    /// Text, bytes, or a message in itself.
    pub fn bytes(self, number: u32, bytes: &[u8]) -> Self {
        let mut message = self.key(number).varint(bytes.len() as u64);
        message.0.extend_from_slice(bytes);
        message
    }

    pub fn text(self, number: u32, text: &str) -> Self {
        self.bytes(number, text.as_bytes())
    }

    pub fn number(self, number: u32, value: u64) -> Self {
        self.varint(u64::from(number) << 3).varint(value)
    }

    /// An entry of a map from text to text.
    pub fn pair(self, number: u32, key: &str, value: &str) -> Self {
        self.bytes(number, &Self::default().text(1, key).text(2, value).0)
    }
}

/// How many bytes a varint takes.
pub fn varint_len(value: usize) -> usize {
    let bits = usize::BITS - value.leading_zeros();
    bits.div_ceil(7).max(1) as usize
}
