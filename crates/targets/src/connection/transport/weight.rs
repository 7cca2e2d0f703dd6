//! Memory of decoded JSON: a few bytes, such as `[{},{},{}]`, can need much.

/// A value and its place in a list or map.
const VALUE_BYTES: usize = 64;
/// An object, which may become a map or a Kubernetes object with all its metadata.
const OBJECT_BYTES: usize = 640;

/// Estimates the decoded size of JSON as it arrives, without decoding it. An upper bound of what a parser needs.
#[derive(Clone, Debug, Default)]
pub(super) struct Weight {
    total: usize,
    in_text: bool,
    escaped: bool,
}

impl Weight {
    /// Adds the next bytes. Returns the weight of all bytes so far.
    pub(super) fn add(&mut self, bytes: &[u8]) -> usize {
        self.total = self.total.saturating_add(bytes.len());
        for byte in bytes {
            self.step(*byte);
        }
        self.total
    }

    /// Adds bytes like [`Self::add`], for lines that are decoded one by one. Returns the weight of the heaviest line,
    /// including the incomplete last one.
    pub(super) fn add_lines(&mut self, bytes: &[u8]) -> usize {
        let mut heaviest = 0;
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').peekable();
        while let Some(line) = lines.next() {
            heaviest = heaviest.max(self.add(line));
            if lines.peek().is_some() || line.ends_with(b"\n") {
                *self = Self::default();
            }
        }
        heaviest
    }

    fn step(&mut self, byte: u8) {
        let cost = match byte {
            _ if self.escaped => {
                self.escaped = false;
                0
            }
            b'\\' if self.in_text => {
                self.escaped = true;
                0
            }
            b'"' => {
                self.in_text = !self.in_text;
                0
            }
            _ if self.in_text => 0,
            b'{' => OBJECT_BYTES,
            b'[' | b',' | b':' => VALUE_BYTES,
            _ => 0,
        };
        self.total = self.total.saturating_add(cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> usize {
        Weight::default().add(text.as_bytes())
    }

    #[test]
    fn many_small_values_weigh_more_than_one_large_one() {
        assert_eq!(of(&format!("\"{}\"", "{[,:".repeat(100))), 402, "text is text");
        assert_eq!(of(r#""\"{\\""#), 7, "an escaped quote ends no text");
        assert!(of(&"{},".repeat(1000)) > 1000 * OBJECT_BYTES);
        assert!(of(&"0,".repeat(1000)) > 1000 * VALUE_BYTES);
    }

    #[test]
    fn it_does_not_matter_how_the_bytes_arrive() {
        let text = br#"{"a{":["\\\"[",{},1],"b":"}"}"#;
        let whole = Weight::default().add(text);
        for cut in 0..text.len() {
            let mut weight = Weight::default();
            weight.add(&text[..cut]);
            assert_eq!(weight.add(&text[cut..]), whole, "cut at {cut}");
        }
    }

    #[test]
    fn lines_are_weighed_one_by_one() {
        let mut weight = Weight::default();
        let line = of("{}\n");
        assert_eq!(weight.add_lines(b"{}\n{}\n{"), line);
        assert_eq!(weight.add_lines(b"}\n"), line, "a line goes on in the next piece");
        assert_eq!(weight.add_lines(b""), 0);
    }
}
