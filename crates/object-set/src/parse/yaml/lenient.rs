//! Corrects text that go-yaml accepts although it is not valid YAML: continued quoted text in block maps at any
//! column, tabs before a line of quoted text or of a flow map or list, a comment directly after a closing quotation
//! mark, bracket, comma or the header of a block scalar, `\'` in double quotes, and a dash as an item of a flow map or
//! list.

/// Maximum growth of a text, as a multiple of its length. Deep indentation of many lines does not occur in real text.
const MAX_GROWTH: usize = 2;

/// Returns the text with these places corrected; `None` if it has none. Line numbers stay, and values are those that
/// go-yaml reads: leading blanks of a line in quoted text have no meaning.
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
                let line = if is_blank(line) { self.without_tabs(line) } else { line };
                if !is_blank(line) && found < indent {
                    self.out.extend(std::iter::repeat_n(' ', indent - found));
                    self.changed = true;
                }
                self.quoted(line, quote, indent);
            }
            State::Flow { depth, quote } => {
                let line = self.without_tabs(line);
                self.flow(line, depth, quote);
            }
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
                let is_header = |c: char| "|>+-".contains(c) || c.is_ascii_digit();
                let behind = value.trim_start_matches(is_header);
                self.out.push_str(&value[..value.len() - behind.len()]);
                self.behind(behind);
                self.state = State::Literal { indent: block };
            }
            _ => self.out.push_str(value),
        }
    }

    /// Adds the blanks at the beginning of a line, with spaces instead of tabs, and returns the rest of the line.
    fn without_tabs<'a>(&mut self, line: &'a str) -> &'a str {
        let content = line.trim_start_matches([' ', '\t']);
        let blanks = &line[..line.len() - content.len()];
        self.changed |= blanks.contains('\t');
        self.out.extend(std::iter::repeat_n(' ', blanks.len()));
        content
    }

    /// Adds the rest of a line in quoted text.
    fn quoted(&mut self, rest: &str, quote: char, indent: usize) {
        let Some(end) = closing(rest, quote) else {
            self.inside(rest, quote);
            self.state = State::Quoted { quote, indent };
            return;
        };
        let (inside, after) = rest.split_at(end);
        self.inside(inside, quote);
        self.state = State::Block;
        self.behind(after);
    }

    /// Adds quoted text, with `\'` in double quotes as an apostrophe.
    fn inside(&mut self, text: &str, quote: char) {
        let mut rest = text;
        while let Some(at) = rest.find('\\').filter(|_| quote == '"') {
            let (before, escape) = rest.split_at(at);
            self.out.push_str(before);
            let escaped = escape[1..].chars().next().map_or(0, char::len_utf8);
            let (escape, after) = escape.split_at(1 + escaped);
            let is_apostrophe = escape == "\\'";
            self.changed |= is_apostrophe;
            self.out.push_str(if is_apostrophe { "'" } else { escape });
            rest = after;
        }
        self.out.push_str(rest);
    }

    /// Adds the rest of a line in a flow map or list.
    fn flow(&mut self, line: &str, mut depth: usize, mut quote: Option<char>) {
        let mut rest = line;
        let (mut previous, mut last_visible) = (' ', ' ');
        while let Some(character) = rest.chars().next() {
            if let Some(open) = quote {
                let Some(end) = closing(rest, open) else { break };
                let (inside, after) = rest.split_at(end);
                self.inside(inside, open);
                // A closing quotation mark ends a value, like a bracket.
                (rest, quote, previous, last_visible) = (after, None, ']', ']');
                continue;
            }
            if starts_dash(rest, previous, last_visible) {
                self.out.push_str("\"-\"");
                self.changed = true;
                (rest, previous, last_visible) = (&rest[1..], ']', ']');
                continue;
            }
            match character {
                '#' if " \t[{,]}".contains(previous) => {
                    if !matches!(previous, ' ' | '\t') {
                        self.out.push(' ');
                        self.changed = true;
                    }
                    self.out.push_str(rest);
                    break;
                }
                '"' | '\'' if " \t[{,:".contains(previous) => quote = Some(character),
                '{' | '[' => depth += 1,
                '}' | ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.out.push(character);
            (rest, previous) = (&rest[character.len_utf8()..], character);
            if !matches!(character, ' ' | '\t') {
                last_visible = character;
            }
            if depth == 0 {
                self.state = State::Block;
                self.behind(rest);
                return;
            }
        }
        if let Some(open) = quote {
            self.inside(rest, open);
        }
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

/// Reports whether a text in a flow map or list begins with a dash that is a whole value. `previous` is the character
/// before it, and `last_visible` the last one on the line that is no blank.
/// Source: `yaml_parser_fetch_next_token` in `scannerc.go` of go-yaml v2.
fn starts_dash(text: &str, previous: char, last_visible: char) -> bool {
    let is_at_value = match previous {
        ' ' | '\t' => "[{,:".contains(last_visible),
        _ => "[{,".contains(previous),
    };
    is_at_value && text.strip_prefix('-').is_some_and(|after| after.starts_with([',', ']', '}']))
}

fn is_blank(line: &str) -> bool {
    line.trim_matches([' ', '\t', '\r', '\n']).is_empty()
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
        Some('{' | '[') => None,
        _ => {
            let text = rest.split(" #").next().unwrap_or(rest);
            [": ", ":\t"].into_iter().filter_map(|colon| text.find(colon)).min()
        }
    };
    if let Some(after) = key_end.and_then(|end| rest.get(end..)?.trim_start_matches(' ').strip_prefix(':'))
        && after.starts_with([' ', '\t'])
    {
        rest = after.trim_start_matches([' ', '\t']);
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
