//! Formats the tree as text. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::node::{NOT_FOUND, Node, Role};
use crate::output;

const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

/// One line: cells, and the health that sets the colour.
struct Line {
    name: String,
    health: &'static str,
    drift: &'static str,
    age: String,
    message: String,
}

/// Returns the objects by namespace, each above the objects that it owns.
pub(super) fn text(nodes: &[Node], now: Timestamp, colours: bool) -> String {
    let mut places: BTreeMap<&str, Vec<&Node>> = BTreeMap::new();
    for node in nodes {
        places.entry(node.namespace.as_deref().unwrap_or_default()).or_default().push(node);
    }
    let mut lines = vec![Line {
        name: "OBJECT".to_owned(),
        health: "HEALTH",
        drift: "DRIFT",
        age: "AGE".to_owned(),
        message: "MESSAGE".to_owned(),
    }];
    for (place, nodes) in places {
        let name = if place.is_empty() { "(cluster-scoped)" } else { place };
        let bare = Line {
            name: output::one_line(name),
            health: "",
            drift: "",
            age: String::new(),
            message: String::new(),
        };
        lines.push(bare);
        branch(&nodes, "", now, &mut lines);
    }
    let width = |cell: fn(&Line) -> usize| lines.iter().map(cell).max().unwrap_or(0);
    let widths = [
        width(|line| line.name.chars().count()),
        width(|line| line.health.len()),
        width(|line| line.drift.len()),
        width(|line| line.age.len()),
    ];
    lines.iter().map(|line| line.text(widths, colours)).collect()
}

fn branch(nodes: &[&Node], indent: &str, now: Timestamp, lines: &mut Vec<Line>) {
    for (number, node) in nodes.iter().enumerate() {
        let is_last = number + 1 == nodes.len();
        let (fork, trunk) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        lines.push(Line::of(node, &format!("{indent}{fork}"), now));
        let children: Vec<&Node> = node.children.iter().collect();
        branch(&children, &format!("{indent}{trunk}"), now, lines);
    }
}

impl Line {
    fn of(node: &Node, indent: &str, now: Timestamp) -> Self {
        let dot = if node.group.is_empty() { "" } else { "." };
        let role = match node.role {
            Role::Hook => " (hook)",
            Role::DefaultResource => " (default)",
            Role::Object | Role::Owned => "",
        };
        let object = format!("{}{dot}{} {}{role}", node.kind, node.group, node.name);
        Self {
            name: format!("{indent}{}", output::one_line(&object)),
            health: node.health,
            drift: node.drift.unwrap_or_default(),
            age: node.created.map(|created| age(now.as_second() - created.as_second())).unwrap_or_default(),
            message: output::one_line(&node.message),
        }
    }

    fn text(&self, widths: [usize; 4], colours: bool) -> String {
        let [name, health, drift, age] = widths;
        let health = format!("{:health$}", self.health);
        let drift = format!("{:drift$}", self.drift);
        let (health, drift) = match colour(self.health).filter(|_| colours) {
            None => (health, drift),
            Some(code) => (coloured(&health, code), coloured(&drift, YELLOW)),
        };
        let line = format!("{:name$}  {health}  {drift}  {:age$}  {}", self.name, self.age, self.message);
        format!("{}\n", line.trim_end())
    }
}

fn coloured(text: &str, code: &str) -> String {
    if text.trim().is_empty() { text.to_owned() } else { format!("\u{1b}[{code}m{text}\u{1b}[0m") }
}

fn colour(health: &str) -> Option<&'static str> {
    match health {
        "Current" => Some(GREEN),
        "Failed" | NOT_FOUND => Some(RED),
        "InProgress" | "Terminating" | "Unknown" => Some(YELLOW),
        _ => None,
    }
}

/// Formats an age in its largest unit, as kubectl does.
fn age(seconds: i64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let unit = units.into_iter().find(|(length, _)| seconds >= *length);
    let (length, unit) = unit.unwrap_or((1, "s"));
    format!("{}{unit}", (seconds / length).max(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(kind: &str, namespace: Option<&str>, name: &str, health: &'static str) -> Node {
        Node {
            group: if kind == "Deployment" { "apps".to_owned() } else { String::new() },
            kind: kind.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            role: Role::Object,
            health,
            message: String::new(),
            drift: None,
            uid: None,
            created: Timestamp::from_second(0).ok(),
            children: vec![],
        }
    }

    fn sample() -> Vec<Node> {
        let mut deployment = node("Deployment", Some("n"), "d", "Failed");
        deployment.message = "it is\nstuck".to_owned();
        deployment.drift = Some("changed");
        deployment.children.push(node("Pod", Some("n"), "p", "Current"));
        let job = Node { role: Role::Hook, created: None, ..node("Job", Some("n"), "j", NOT_FOUND) };
        vec![node("ClusterRole", None, "r", "Current"), deployment, job]
    }

    #[test]
    fn objects_stand_by_namespace_with_what_they_own() {
        let now = Timestamp::from_second(7_300).unwrap();
        let expected = "\
OBJECT                HEALTH    DRIFT    AGE  MESSAGE
(cluster-scoped)
└─ ClusterRole r      Current            2h
n
├─ Deployment.apps d  Failed    changed  2h   it is stuck
│  └─ Pod p           Current            2h
└─ Job j (hook)       NotFound
";
        assert_eq!(text(&sample(), now, false), expected);
    }

    #[test]
    fn colours_change_nothing_but_the_colour() {
        let now = Timestamp::from_second(7_300).unwrap();
        let plain = text(&sample(), now, false);
        let mut shown = text(&sample(), now, true);
        assert!(shown.contains("\u{1b}[31mFailed"), "{shown}");
        for code in [RED, GREEN, YELLOW, "0"] {
            shown = shown.replace(&format!("\u{1b}[{code}m"), "");
        }
        assert_eq!(shown, plain);
    }

    #[test]
    fn ages_are_short() {
        let all = [-5, 0, 59, 60, 3_599, 3_600, 90_000].map(age);
        assert_eq!(all, ["0s", "0s", "59s", "1m", "59m", "1h", "1d"]);
    }
}
