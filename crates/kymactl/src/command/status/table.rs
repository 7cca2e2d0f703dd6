//! Formats rows as a table.

use super::fleet::Row;
use crate::output;

const HEADINGS: [&str; 8] =
    ["NAMESPACE", "CLUSTER", "MODULE", "VERSION", "CHANNEL", "STATE", "CLUSTER STATE", "MESSAGE"];

/// Returns a table with headings; the message is the last column. `wide` adds the state of the Kyma.
pub(crate) fn render(rows: &[Row], namespaces: bool, wide: bool) -> String {
    let is_shown = |heading: &str| match heading {
        "NAMESPACE" => namespaces,
        "CLUSTER STATE" => wide,
        _ => true,
    };
    let shown_cells = |cells: [String; HEADINGS.len()]| -> Vec<String> {
        let columns = cells.into_iter().zip(HEADINGS);
        columns.filter_map(|(cell, heading)| is_shown(heading).then_some(cell)).collect()
    };
    let headings = HEADINGS.map(str::to_owned);
    let lines = [headings].into_iter().chain(rows.iter().map(cells));
    output::columns(&lines.map(shown_cells).collect::<Vec<_>>())
}

fn cells(row: &Row) -> [String; HEADINGS.len()] {
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    [
        or_dash(&row.namespace),
        or_dash(&row.cluster),
        or_dash(&row.module),
        or_dash(&row.version),
        or_dash(&row.channel),
        row.state.to_owned(),
        row.cluster_state.to_owned(),
        output::one_line(&row.message),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cluster: &str, module: &str, message: &str) -> Row {
        Row {
            namespace: "kcp-system".to_owned(),
            cluster: cluster.to_owned(),
            module: module.to_owned(),
            version: "1.0.0".to_owned(),
            channel: String::new(),
            state: "Ready",
            message: message.to_owned(),
            cluster_state: "Error",
        }
    }

    #[test]
    fn columns_line_up_and_nothing_breaks_a_line() {
        let table = render(&[row("a", "keda", ""), row("longer", "", "one\ntwo")], false, false);
        let expected = "\
CLUSTER  MODULE  VERSION  CHANNEL  STATE  MESSAGE
a        keda    1.0.0    -        Ready
longer   -       1.0.0    -        Ready  one two
";
        assert_eq!(table, expected);
        let table = render(&[row("a", "keda", "no")], true, true);
        let expected = "\
NAMESPACE   CLUSTER  MODULE  VERSION  CHANNEL  STATE  CLUSTER STATE  MESSAGE
kcp-system  a        keda    1.0.0    -        Ready  Error          no
";
        assert_eq!(table, expected);
    }
}
