use super::*;

fn node(name: &str) -> Node {
    Node { kind: Kind::helm(), name: name.to_owned() }
}

fn on(name: &str) -> Requirement {
    need(DependencyTarget::Component(node(name)), None)
}

fn need(on: DependencyTarget, ready: Option<&str>) -> Requirement {
    let version = "component.kyma-project.io/v1alpha1".to_owned();
    Requirement { on, name: "it".to_owned(), version, ready: ready.map(str::to_owned) }
}

fn ready(needs: Vec<Requirement>) -> View {
    View { uid: "u".to_owned(), is_ready: true, needs, ..View::default() }
}

fn unready(needs: Vec<Requirement>) -> View {
    View { is_ready: false, ..ready(needs) }
}

/// Returns a graph of these HelmComponents, whose list is complete.
fn graph(components: &[(&str, View)]) -> Graph {
    let mut graph = Graph::default();
    graph.set_list_state(&Kind::helm(), ListState::Listed);
    for (name, view) in components {
        graph.set(&node(name), view.clone());
    }
    graph
}

fn names(nodes: impl IntoIterator<Item = Node>) -> Vec<String> {
    let mut names: Vec<String> = nodes.into_iter().map(|node| node.name).collect();
    names.sort_unstable();
    names
}

fn why(graph: &Graph, need: Requirement) -> Option<UnmetReason> {
    graph.unmet(None, &[need]).pop().map(|unmet| unmet.why)
}

fn cycle(graph: &Graph, name: &str) -> Option<Vec<String>> {
    let needs = graph.views[&node(name)].needs.clone();
    let cycle = graph.cycle(&node(name), &needs)?;
    Some(cycle.into_iter().map(|node| node.name).collect())
}

#[test]
fn dependent_is_requeued_by_state_change_not_by_every_write() {
    let mut graph =
        graph(&[("a", unready(vec![])), ("b", unready(vec![on("a")])), ("c", unready(vec![on("b")]))]);
    assert_eq!(why(&graph, on("a")), Some(UnmetReason::NotReady));
    assert_eq!(names(graph.set(&node("a"), unready(vec![]))), [""; 0]);
    assert_eq!(names(graph.set(&node("a"), ready(vec![]))), ["b"], "its own dependents alone");
    assert_eq!(why(&graph, on("a")), None);
    assert_eq!(names(graph.set(&node("a"), View { is_deleting: true, ..ready(vec![]) })), ["b"]);
    assert_eq!(why(&graph, on("a")), Some(UnmetReason::Deleting));
    assert_eq!(names(graph.remove(&node("a"))), ["b", "c"]);
    assert_eq!(why(&graph, on("a")), Some(UnmetReason::Absent));
    assert_eq!(names(graph.set(&node("a"), ready(vec![]))), ["b", "c"], "it may close a circle");
}

#[test]
fn component_is_missing_only_once_a_list_lacks_it() {
    let mut graph = Graph::default();
    assert_eq!(why(&graph, on("a")), Some(UnmetReason::Listing));
    graph.set_list_state(&Kind::helm(), ListState::Refused("not served".to_owned()));
    assert_eq!(why(&graph, on("a")), Some(UnmetReason::Refused("not served".to_owned())));
    graph.set(&node("b"), unready(vec![on("a")]));
    assert_eq!(names(graph.set_list_state(&Kind::helm(), ListState::Listed)), ["b"]);
    assert_eq!(why(&graph, on("a")), Some(UnmetReason::Absent));
    graph.set(&node("a"), ready(vec![]));
    let woken = graph.listed(&Kind::helm(), &BTreeSet::from(["b".to_owned()]));
    assert_eq!((names(woken), why(&graph, on("a"))), (vec!["b".to_owned()], Some(UnmetReason::Absent)));
}

#[test]
fn module_is_the_component_of_the_same_kyma_with_its_name() {
    let of = |kyma: &str| View { kyma: Some(kyma.into()), module: Some("istio".into()), ..ready(vec![]) };
    let module = || need(DependencyTarget::Module { kyma: "k".into(), module: "istio".into() }, None);
    let mut graph = graph(&[("other", of("another"))]);
    let unmet = |graph: &Graph| graph.unmet(Some("k"), &[module()]).pop().map(|unmet| unmet.why);
    assert_eq!(unmet(&graph), Some(UnmetReason::Absent));
    graph.set(&node("b"), View { kyma: Some("k".into()), ..unready(vec![module()]) });
    assert_eq!(names(graph.set(&node("istio"), of("k"))), ["b"]);
    assert_eq!(unmet(&graph), None);
    let going = View { is_deleting: true, ..of("k") };
    graph.set(&node("istio"), going);
    assert_eq!(unmet(&graph), Some(UnmetReason::Deleting));
    graph.set(&node("successor"), of("k"));
    assert_eq!(unmet(&graph), None, "one follows another");
    graph.remove(&node("istio"));
    assert_eq!(names(graph.remove(&node("successor"))), ["b"]);
    assert!(graph.modules.len() == 1, "that of the other Kyma");
}

#[test]
fn component_of_another_kyma_is_not_awaited_or_delayed() {
    let theirs = View { kyma: Some("theirs".into()), ..ready(vec![]) };
    let ours = View { kyma: Some("ours".into()), ..unready(vec![on("a")]) };
    let graph = graph(&[("a", theirs), ("b", ours)]);
    assert_eq!(graph.unmet(Some("ours"), &[on("a")])[0].why, UnmetReason::OfAnotherKyma);
    assert_eq!(graph.holders(&node("a")), Ok(BTreeMap::new()));
}

#[test]
fn an_expression_decides_instead_of_the_condition() {
    let by = |expression: &str| need(DependencyTarget::Component(node("a")), Some(expression));
    let judged = |verdict| BTreeMap::from([("x".to_owned(), verdict)]);
    let mut graph = graph(&[("a", unready(vec![])), ("b", unready(vec![by("x"), by("y")]))]);
    assert_eq!(graph.expressions(&node("a"), None), BTreeSet::from(["x".to_owned(), "y".to_owned()]));
    assert_eq!(why(&graph, by("x")), Some(UnmetReason::NotEvaluated(node("a"), "x".to_owned())));
    graph.add_results(&node("a"), judged(Readiness::NotReady));
    assert_eq!(why(&graph, by("x")), Some(UnmetReason::Denied));
    graph.add_results(&node("a"), judged(Readiness::Ready));
    assert_eq!(why(&graph, by("x")), Some(UnmetReason::Denied), "what arrived is newer than what was read");
    let woken = graph.set(&node("a"), View { judged: judged(Readiness::Ready), ..unready(vec![]) });
    assert_eq!((names(woken), why(&graph, by("x"))), (vec!["b".to_owned()], None));
    graph.set(&node("a"), View { judged: judged(Readiness::Unclear), ..unready(vec![]) });
    assert_eq!(why(&graph, by("x")), Some(UnmetReason::Unclear));
}

#[test]
fn each_member_of_a_circle_finds_it_and_nobody_else() {
    let mut graph = graph(&[
        ("a", unready(vec![on("b")])),
        ("b", unready(vec![on("c")])),
        ("c", unready(vec![on("a"), on("d")])),
        ("d", unready(vec![])),
        ("e", unready(vec![on("a")])),
        ("self", unready(vec![on("self")])),
    ]);
    assert_eq!(cycle(&graph, "a").unwrap(), ["a", "b", "c", "a"]);
    assert_eq!(cycle(&graph, "b").unwrap(), ["b", "c", "a", "b"]);
    assert_eq!(cycle(&graph, "c").unwrap(), ["c", "a", "b", "c"]);
    assert_eq!(cycle(&graph, "self").unwrap(), ["self", "self"]);
    assert_eq!((cycle(&graph, "d"), cycle(&graph, "e")), (None, None));
    let woken = graph.set(&node("c"), unready(vec![on("d")]));
    assert_eq!(names(woken), ["a", "b", "c", "e"], "all that lead to it");
    assert_eq!((cycle(&graph, "a"), cycle(&graph, "c")), (None, None));
}

#[test]
fn of_several_circles_the_shortest_is_told() {
    let graph = graph(&[
        ("a", unready(vec![on("b"), on("c")])),
        ("b", unready(vec![on("d")])),
        ("c", unready(vec![on("a")])),
        ("d", unready(vec![on("a")])),
    ]);
    assert_eq!(cycle(&graph, "a").unwrap(), ["a", "c", "a"]);
}

#[test]
fn removal_waits_for_dependents_unless_in_a_circle() {
    let going = |needs| View { is_deleting: true, ..ready(needs) };
    let mut graph = graph(&[("a", going(vec![])), ("b", going(vec![on("a")])), ("c", ready(vec![on("a")]))]);
    assert_eq!(graph.holders(&node("a")), Ok(BTreeMap::from([(node("b"), true), (node("c"), false)])));
    assert_eq!(graph.holders(&node("b")), Ok(BTreeMap::new()));
    assert_eq!(names(graph.remove(&node("b"))), ["a"], "whose turn it may be now");
    graph.set(&node("c"), ready(vec![]));
    assert_eq!(graph.holders(&node("a")), Ok(BTreeMap::new()));
    graph.set(&node("a"), going(vec![on("c")]));
    graph.set(&node("c"), going(vec![on("a")]));
    assert_eq!(graph.holders(&node("a")), Ok(BTreeMap::new()));
}

#[test]
fn while_a_kind_is_listed_no_removal_goes_on() {
    let mut graph = graph(&[("a", View { is_deleting: true, ..ready(vec![]) })]);
    let greeting = Kind { group: "x".to_owned(), kind: "Greeting".to_owned() };
    graph.set_list_state(&greeting, ListState::Listing);
    assert_eq!(graph.holders(&node("a")), Err(greeting.clone()));
    assert_eq!(
        names(graph.set_list_state(&greeting, ListState::Refused(String::new()))),
        ["a"],
        "it is woken"
    );
    assert_eq!(
        graph.holders(&node("a")),
        Ok(BTreeMap::new()),
        "a kind that cannot be read keeps nobody else"
    );
}

#[test]
fn a_kind_is_followed_while_somebody_names_it() {
    let kind = Kind { group: "x".to_owned(), kind: "Greeting".to_owned() };
    let other = Node { kind: kind.clone(), name: "g".to_owned() };
    let by =
        Requirement { version: "x/v1".to_owned(), ..need(DependencyTarget::Component(other.clone()), None) };
    let mut graph = graph(&[("a", ready(vec![]))]);
    assert_eq!(graph.new_kinds(), None, "nothing is named");
    graph.set(&node("b"), unready(vec![by.clone()]));
    let in_versions = |versions: &[&str]| {
        let versions = versions.iter().map(|version| format!("x/{version}")).collect();
        Some(BTreeMap::from([(kind.clone(), versions)]))
    };
    assert_eq!(graph.new_kinds(), in_versions(&["v1"]));
    let newer = Requirement { version: "x/v2".to_owned(), ..by.clone() };
    graph.set(&node("c"), unready(vec![newer.clone()]));
    assert_eq!(graph.new_kinds(), in_versions(&["v1", "v2"]));
    graph.set(&node("c"), ready(vec![]));
    assert_eq!(graph.new_kinds(), in_versions(&["v1"]));
    graph.set(&other, ready(vec![]));
    assert_eq!(why(&graph, by.clone()), None);
    graph.set_list_state(&kind, ListState::Refused("gone".to_owned()));
    let refused = Some(UnmetReason::Refused("gone".to_owned()));
    assert_eq!(why(&graph, by.clone()), refused, "nobody knows whether it is ready still");
    graph.set(&node("b"), ready(vec![]));
    assert_eq!(graph.new_kinds(), Some(BTreeMap::new()));
    graph.drop_kind(&kind);
    assert!(!graph.views.contains_key(&other) && !graph.list_states.contains_key(&kind));
}

#[test]
fn a_chain_of_a_thousand_is_learnt_in_any_order() {
    let chain = |number: usize| {
        let needs = if number == 0 { vec![] } else { vec![on(&format!("n{}", number - 1))] };
        (node(&format!("n{number}")), unready(needs))
    };
    let mut graph = graph(&[]);
    for number in (0..1_000).rev() {
        let (node, view) = chain(number);
        graph.set(&node, view);
    }
    assert_eq!(cycle(&graph, "n999"), None);
    let (first, view) = chain(0);
    assert_eq!(names(graph.set(&first, View { is_ready: true, ..view })), ["n1"]);
}
