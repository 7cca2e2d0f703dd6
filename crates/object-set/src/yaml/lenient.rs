//! Corrects text that go-yaml accepts although it is not valid YAML: continued quoted text in block maps at any
//! column, and a comment directly after a closing quotation mark or bracket.

/// Maximum growth of a text, as a multiple of its length. Deep indentation of many lines does not occur in real text.
const MAX_GROWTH: usize = 2;

/// Returns the text with such lines indented and such comments separated; `None` if it has none. Line numbers stay,
/// and values are those that go-yaml reads: leading blanks of a line in quoted text have no meaning.
pub(super) fn corrected(text: &str) -> Option<String> {
    let mut scanner = Scanner { out: String::with_capacity(text.len()), state: State::Block, changed: false };
    for line in text.split_inclusive('\n') {
        scanner.take(line)?;
        if scanner.out.len() > text.len().saturating_mul(1 + MAX_GROWTH) + 1024 {
            return None;
        }
    }
    scanner.changed.then_some(scanner.out)
}

/// Context at the beginning of the next line.
enum State {
    /// Block maps and lists.
    Block,
    /// The lines of a block scalar whose header has this indentation.
    Literal { indent: usize },
    /// Quoted text, whose lines need at least this indentation.
    Quoted { quote: char, indent: usize },
    /// A flow map or list: number of open brackets, and the quotation mark of open quoted text.
    Flow { depth: usize, quote: Option<char> },
}

struct Scanner {
    out: String,
    state: State,
    changed: bool,
}

impl Scanner {
    /// Adds a line; `None` if it ends a document in the middle of quoted text.
    fn take(&mut self, line: &str) -> Option<()> {
        match self.state {
            State::Literal { indent } if is_blank(line) || indentation(line) > indent => {
                self.out.push_str(line);
            }
            State::Block | State::Literal { .. } => {
                self.state = State::Block;
                self.block(line);
            }
            State::Quoted { quote, indent } => {
                if line.starts_with("...") {
                    return None;
                }
                let found = indentation(line);
                if !is_blank(line) && found < indent {
                    self.out.extend(std::iter::repeat_n(' ', indent - found));
                    self.changed = true;
                }
                self.quoted(line, quote, indent);
            }
            State::Flow { depth, quote } => self.flow(line, depth, quote),
        }
        Some(())
    }

    fn block(&mut self, line: &str) {
        let indent = indentation(line);
        let (entries, value) = value_of(&line[indent..]);
        let block = indent + entries;
        let start = line.len() - value.len();
        self.out.push_str(&line[..start]);
        match value.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                self.out.push(quote);
                self.quoted(&value[1..], quote, block + 1);
            }
            Some('{' | '[') => self.flow(value, 0, None),
            Some('|' | '>') => {
                self.out.push_str(value);
                self.state = State::Literal { indent: block };
            }
            _ => self.out.push_str(value),
        }
    }

    /// Adds the rest of a line in quoted text.
    fn quoted(&mut self, rest: &str, quote: char, indent: usize) {
        let Some(end) = closing(rest, quote) else {
            self.out.push_str(rest);
            self.state = State::Quoted { quote, indent };
            return;
        };
        let (inside, after) = rest.split_at(end);
        self.out.push_str(inside);
        self.state = State::Block;
        self.behind(after);
    }

    fn flow(&mut self, rest: &str, mut depth: usize, mut quote: Option<char>) {
        let mut at = 0;
        while let Some(character) = rest[at..].chars().next() {
            if let Some(open) = quote {
                let Some(end) = closing(&rest[at..], open) else { break };
                (at, quote) = (at + end, None);
                continue;
            }
            at += character.len_utf8();
            let before = &rest[..at - character.len_utf8()];
            let begins = before.is_empty() || before.ends_with([' ', '[', '{', ',', ':']);
            match character {
                '"' | '\'' if begins => quote = Some(character),
                '{' | '[' => depth += 1,
                '}' | ']' => depth = depth.saturating_sub(1),
                '#' if begins => at = rest.len(),
                _ => {}
            }
            if depth == 0 {
                self.out.push_str(&rest[..at]);
                self.state = State::Block;
                self.behind(&rest[at..]);
                return;
            }
        }
        self.out.push_str(rest);
        self.state = State::Flow { depth, quote };
    }

    /// Adds the text after a value on its line: nothing, a comment, or a colon and another value, if the value was a
    /// key.
    fn behind(&mut self, rest: &str) {
        if rest.starts_with('#') {
            self.out.push(' ');
            self.changed = true;
        }
        self.out.push_str(rest);
    }
}

fn is_blank(line: &str) -> bool {
    line.trim().is_empty()
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Returns the width of the list entries at the beginning of a line, and the value of the line or of its key, without
/// anchor and tag.
fn value_of(line: &str) -> (usize, &str) {
    let mut rest = line;
    while let Some(inner) = rest.strip_prefix("- ").or_else(|| rest.strip_prefix("? ")) {
        rest = inner.trim_start_matches(' ');
    }
    let entries = line.len() - rest.len();
    if rest.starts_with('#') {
        return (entries, "");
    }
    let key_end = match rest.chars().next() {
        Some(quote @ ('"' | '\'')) => closing(&rest[1..], quote).map(|end| end + 1),
        _ => Some(rest.find(": ").unwrap_or(rest.len())),
    };
    if let Some(after) = key_end.and_then(|end| rest.get(end..)?.trim_start_matches(' ').strip_prefix(": ")) {
        rest = after.trim_start_matches(' ');
    }
    while rest.starts_with(['&', '!']) {
        let Some((_, after)) = rest.split_once(' ') else { break };
        rest = after.trim_start_matches(' ');
    }
    (entries, rest)
}

/// Returns the end of quoted text, after its closing mark.
fn closing(text: &str, quote: char) -> Option<usize> {
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' if quote == '"' => {
                characters.next();
            }
            _ if character != quote => {}
            '\'' if characters.next_if(|(_, next)| *next == '\'').is_some() => {}
            _ => return Some(at + 1),
        }
    }
    None
}
