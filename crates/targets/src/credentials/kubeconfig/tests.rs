use serde_json::json;

use super::*;

const SECRET: &str = "planted-secret-value";

fn valid() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "preferences": {},
        "clusters": [{"name": "c", "cluster": {
            "server": "https://api.example.org:6443/prefix",
            "certificate-authority-data": "Y2E=",
        }}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "users": [{"name": "u", "user": {"token": SECRET}}],
    })
}

fn with(pointer: &str, field: &str, value: Value) -> Value {
    let mut config = valid();
    config.pointer_mut(pointer).unwrap()[field] = value;
    config
}

fn parse(config: &Value) -> Result<Kubeconfig, KubeconfigError> {
    Kubeconfig::parse(config.to_string().as_bytes(), &AccessPolicy::default())
}

const CLUSTER: &str = "/clusters/0/cluster";
const USER: &str = "/users/0/user";

#[test]
fn a_likely_kubeconfig_is_one_that_is_accepted_or_another_one() {
    let executable = json!({"clusters": [], "users": [{"user": {"exec": {"command": "get-token"}}}]});
    let two = format!("--- {{}}\n---\n{}", valid());
    for text in [valid().to_string(), executable.to_string(), "kind: Config".to_owned(), two] {
        assert!(Kubeconfig::is_likely(text.as_bytes()), "{text}");
    }
    for text in ["", "plain text", "a: [", r#"{"auths": {"r.example": {"auth": "eDp5"}}}"#, "kind: Secret"] {
        assert!(!Kubeconfig::is_likely(text.as_bytes()), "{text}");
    }
}

#[test]
fn inline_token_and_authority_are_accepted() {
    let config = parse(&valid()).unwrap();
    assert_eq!(config.server(), "api.example.org:6443");
    assert_eq!(config.server.path(), "/prefix");
    assert_eq!(config.token.as_deref(), Some(SECRET));
    assert_eq!(config.authorities, b"ca");
    assert_eq!(config.namespace(), Some("n"));
}

#[test]
fn an_inline_client_certificate_is_accepted() {
    let mut config = valid();
    config["users"][0]["user"] = json!({"client-certificate-data": "Y2VydA==", "client-key-data": "a2V5"});
    let identity = parse(&config).unwrap().identity.unwrap();
    assert_eq!((identity.certificate.as_slice(), identity.key.as_slice()), (&b"cert"[..], &b"key"[..]));
}

/// Exchanges tokens for `api.example.org:6443` only.
struct Provider;

impl crate::TokenProvider for Provider {
    fn serves(&self, server: &Url) -> bool {
        server.host_str() == Some("api.example.org") && server.port() == Some(6443)
    }

    fn issue<'a>(
        &'a self,
        _: &'a Url,
    ) -> futures::future::BoxFuture<'a, Result<crate::IssuedToken, crate::TokenError>> {
        Box::pin(async { Err(crate::TokenError::Unreachable("never asked")) })
    }
}

#[test]
fn registered_provider_replaces_exec_only_for_its_servers() {
    let policy = AccessPolicy {
        allow_proxy: true,
        token_providers: crate::TokenProviders::default().with("get-token", Provider),
        ..AccessPolicy::default()
    };
    let parse = |config: &Value| Kubeconfig::parse(config.to_string().as_bytes(), &policy);
    let user = |exec: Value| {
        let mut config = valid();
        config["users"][0]["user"] = json!({"exec": exec});
        config
    };
    let wished =
        json!({"command": "get-token", "args": ["--audience=evil"], "env": [{"name": "A", "value": "b"}]});
    let accepted = parse(&user(wished.clone())).unwrap();
    assert_eq!((accepted.provider.as_deref(), accepted.token), (Some("get-token"), None));

    let altered = |pointer: &str, field: &str, value: Value| {
        let mut config = user(wished.clone());
        config.pointer_mut(pointer).unwrap()[field] = value;
        config
    };
    for (config, field) in [
        (user(json!({"command": "/usr/bin/get-token"})), "users[].user.exec"),
        (user(json!({"command": ["get-token"]})), "users[].user.exec"),
        (user(json!("get-token")), "users[].user.exec"),
        (altered(CLUSTER, "server", json!("https://evil.example.org:6443")), "users[].user.exec"),
        (altered(CLUSTER, "proxy-url", json!("http://proxy.example.org")), "clusters[].cluster.proxy-url"),
        (
            altered(CLUSTER, "tls-server-name", json!("evil.example.org")),
            "clusters[].cluster.tls-server-name",
        ),
        (altered(USER, "token", json!(SECRET)), "users[].user.exec"),
        (altered(USER, "client-key-data", json!("a2V5")), "users[].user.exec"),
        (altered(USER, "as", json!("admin")), "users[].user.as"),
        (altered(USER, "auth-provider", json!({})), "users[].user.auth-provider"),
    ] {
        match parse(&config) {
            Err(KubeconfigError::Refused { field: refused, .. }) => assert_eq!(refused, field, "{config}"),
            other => panic!("{config}: {other:?}"),
        }
    }
    assert!(parse(&valid()).unwrap().provider.is_none());
}

#[test]
fn yaml_as_kubectl_and_gardener_write_it_is_accepted() {
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: g\nclusters:\n- name: g\n  cluster:\n    \
                certificate-authority-data: Y2E=\n    server: https://api.example.org\ncontexts:\n- name: g\n  \
                context:\n    cluster: g\n    user: g\nusers:\n- name: g\n  user:\n    token: \"abc\"\n";
    let config = Kubeconfig::parse(text.as_bytes(), &AccessPolicy::default()).unwrap();
    assert_eq!(config.server(), "api.example.org:443");
}

/// One row for each field that is refused: where, name, value.
fn refused_fields(marker: &str) -> Vec<(&'static str, &'static str, Value)> {
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [marker]});
    vec![
        (USER, "exec", exec.clone()),
        (USER, "auth-provider", json!({"name": "gcp", "config": {"cmd-path": marker, "token": SECRET}})),
        (USER, "tokenFile", json!(SECRET)),
        (USER, "client-certificate", json!(SECRET)),
        (USER, "client-key", json!(SECRET)),
        (USER, "username", json!(SECRET)),
        (USER, "password", json!(SECRET)),
        (USER, "as", json!(SECRET)),
        (USER, "as-uid", json!(SECRET)),
        (USER, "as-groups", json!([SECRET])),
        (USER, "as-user-extra", json!({"x": [SECRET]})),
        (CLUSTER, "certificate-authority", json!(SECRET)),
        (CLUSTER, "insecure-skip-tls-verify", json!(true)),
        (CLUSTER, "proxy-url", json!("http://planted-secret-value:3128")),
        (CLUSTER, "server", json!("http://planted-secret-value")),
    ]
}

#[test]
fn each_dangerous_field_is_refused_by_name_without_its_value() {
    let marker = std::env::temp_dir().join(format!("kubeconfig-exec-ran-{}", std::process::id()));
    for (place, name, value) in refused_fields(&marker.to_string_lossy()) {
        let error = parse(&with(place, name, value)).unwrap_err();
        let KubeconfigError::Refused { field, .. } = error else {
            panic!("{name} gave {error:?}");
        };
        assert!(field.ends_with(&format!(".{name}")), "{name} is called {field}");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(SECRET), "{name} leaks its value: {shown}");
    }
    assert!(!marker.exists(), "a program from a kubeconfig was run");
}

#[test]
fn fields_that_say_nothing_are_accepted_as_kubectl_does() {
    for name in ["certificate-authority", "insecure-skip-tls-verify", "proxy-url", "tls-server-name"] {
        assert!(parse(&with(CLUSTER, name, Value::Null)).is_ok(), "{name}");
    }
    assert!(parse(&with(CLUSTER, "insecure-skip-tls-verify", json!(false))).is_ok());
    for name in ["certificate-authority", "proxy-url", "tls-server-name"] {
        assert!(parse(&with(CLUSTER, name, json!(""))).is_ok(), "{name}");
    }
    let texts = ["tokenFile", "client-certificate", "client-key", "username", "password", "as", "as-uid"];
    for name in texts {
        assert!(parse(&with(USER, name, json!(""))).is_ok(), "{name}");
        assert!(parse(&with(USER, name, Value::Null)).is_ok(), "{name}");
    }
    for (name, value) in [
        ("exec", Value::Null),
        ("auth-provider", Value::Null),
        ("as-groups", json!([])),
        ("as-user-extra", json!({})),
        ("client-certificate-data", json!("")),
        ("client-key-data", Value::Null),
    ] {
        assert!(parse(&with(USER, name, value)).is_ok(), "{name}");
    }
    for (place, name, value) in [
        (USER, "exec", json!({})),
        (USER, "exec", json!("")),
        (USER, "auth-provider", json!({})),
        (USER, "as", json!(false)),
        (USER, "as-groups", json!([""])),
        (CLUSTER, "insecure-skip-tls-verify", json!("false")),
        (CLUSTER, "insecure-skip-tls-verify", json!(0)),
    ] {
        let refused = parse(&with(place, name, value.clone()));
        assert!(matches!(refused, Err(KubeconfigError::Refused { .. })), "{name}: {value}");
    }
}

#[test]
fn encodings_and_markers_that_kubectl_reads_are_accepted() {
    let text = format!("{}\n", valid());
    let parse = |text: &str| Kubeconfig::parse(text.as_bytes(), &AccessPolicy::default());
    for (before, after) in
        [("---\n", ""), ("", "---\n"), ("", "---\n---\n"), ("", "...\n"), ("", "--- # end\n# end\n")]
    {
        assert!(parse(&format!("{before}{text}{after}")).is_ok(), "{before:?} {after:?}");
    }
    let utf_16: Vec<u8> = format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(Kubeconfig::parse(&utf_16, &AccessPolicy::default()).is_ok());
    assert!(parse(&format!("{text}---\nkind: Config\n")).is_err(), "a second document with content");
}

#[test]
fn a_field_that_nobody_knows_is_refused_without_being_quoted() {
    for (place, parent) in [(CLUSTER, "clusters[].cluster"), (USER, "users[].user"), ("", "the document")] {
        let error = parse(&with(place, SECRET, json!("x"))).unwrap_err();
        assert_eq!(error, KubeconfigError::Unknown { parent });
    }
}

#[test]
fn what_is_needed_and_missing_is_named() {
    let without = |pointer: &str, field: &str| with(pointer, field, Value::Null);
    let rows = [
        (without("", "current-context"), "current-context"),
        (without("", "clusters"), "clusters"),
        (without("", "users"), "users"),
        (without(CLUSTER, "server"), "clusters[].cluster.server"),
        (without(CLUSTER, "certificate-authority-data"), "clusters[].cluster.certificate-authority-data"),
        (without(USER, "token"), "users[].user.token"),
        (with(USER, "client-certificate-data", json!("Y2E=")), "users[].user.client-key-data"),
        (with(USER, "client-key-data", json!("Y2E=")), "users[].user.client-certificate-data"),
        (without("/contexts/0/context", "user"), "contexts[].context.user"),
    ];
    for (config, field) in rows {
        assert_eq!(parse(&config).unwrap_err(), KubeconfigError::Missing { field });
    }
}

#[test]
fn dangling_references_and_double_names_are_errors() {
    let dangling = |field| KubeconfigError::Dangling { field };
    assert_eq!(parse(&with("", "current-context", json!("x"))).unwrap_err(), dangling("current-context"));
    let user = with("/contexts/0/context", "user", json!("x"));
    assert_eq!(parse(&user).unwrap_err(), dangling("contexts[].context.user"));
    let mut doubled = valid();
    let entry = doubled["users"][0].clone();
    doubled["users"].as_array_mut().unwrap().push(entry);
    assert!(matches!(parse(&doubled).unwrap_err(), KubeconfigError::Malformed { field: "users", .. }));
}

#[test]
fn entries_of_other_contexts_are_never_used() {
    let mut config = valid();
    let other = json!({"name": "other", "user": {"exec": {"command": "touch"}}});
    config["users"].as_array_mut().unwrap().push(other);
    assert!(parse(&config).is_ok());
}

#[test]
fn malformed_values_are_named_and_not_shown() {
    let rows = [
        (with(CLUSTER, "server", json!("planted-secret-value")), "clusters[].cluster.server"),
        (with(CLUSTER, "server", json!("https://u:planted-secret-value@h")), "clusters[].cluster.server"),
        (with(CLUSTER, "server", json!("https://h?planted-secret-value")), "clusters[].cluster.server"),
        (with(CLUSTER, "server", json!(7)), "clusters[].cluster.server"),
        (
            with(CLUSTER, "certificate-authority-data", json!("planted-secret-value!")),
            "clusters[].cluster.certificate-authority-data",
        ),
        (with(USER, "token", json!("planted-secret-value\r\nX-Evil: 1")), "users[].user.token"),
        (with(USER, "token", json!(" ")), "users[].user.token"),
    ];
    for (config, expected) in rows {
        let error = parse(&config).unwrap_err();
        assert!(
            matches!(error, KubeconfigError::Malformed { field, .. } if field == expected),
            "{expected}: {error:?}"
        );
        assert!(!format!("{error} {error:?}").contains(SECRET));
    }
}

#[test]
fn proxies_need_the_flag_and_carry_no_credentials() {
    let allowed = AccessPolicy { allow_proxy: true, ..AccessPolicy::default() };
    let parse = |proxy: &str| {
        let config = with(CLUSTER, "proxy-url", json!(proxy));
        Kubeconfig::parse(config.to_string().as_bytes(), &allowed)
    };
    let config = with(CLUSTER, "proxy-url", json!("http://proxy:3128")).to_string();
    let refused = Kubeconfig::parse(config.as_bytes(), &AccessPolicy::default()).unwrap_err().to_string();
    assert!(refused.contains("--allow-target-proxy"), "{refused}");
    assert_eq!(parse("http://proxy:3128").unwrap().proxy.unwrap().as_str(), "http://proxy:3128/");
    for refused in ["http://u:p@proxy:3128", "socks5://proxy", "https://proxy", "no url"] {
        assert!(matches!(parse(refused).unwrap_err(), KubeconfigError::Malformed { .. }), "{refused}");
    }
}

#[test]
fn what_is_no_kubeconfig_is_a_syntax_error_that_quotes_nothing() {
    let bomb = "a: &a [x,x]\nb: &b [*a,*a]\nclusters: [*b,*b]\n".to_owned();
    let deep = format!("a: {}{}", "[".repeat(500), "]".repeat(500));
    let rows = [
        SECRET.to_owned(),
        format!("token: \"{SECRET}"),
        format!("a: 1\n{SECRET}: [\n"),
        "a: 1\na: 2\n".to_owned(),
        "- a\n".to_owned(),
        String::new(),
        "\u{0}\u{1}".to_owned(),
        "a: 1\n---\nb: 2\n".to_owned(),
        bomb,
        deep,
    ];
    for text in rows {
        let error = Kubeconfig::parse(text.as_bytes(), &AccessPolicy::default()).unwrap_err();
        assert!(matches!(error, KubeconfigError::Syntax { .. }), "{text:?}: {error:?}");
        assert!(!format!("{error} {error:?}").contains(SECRET), "{error:?}");
    }
    let not_text = Kubeconfig::parse(&[0xff, 0xfe, 0x80], &AccessPolicy::default()).unwrap_err();
    assert!(matches!(not_text, KubeconfigError::Syntax { .. }));
}

#[test]
fn a_large_document_is_not_even_parsed() {
    let large = vec![b'['; MAX_KUBECONFIG_BYTES + 1];
    let error = Kubeconfig::parse(&large, &AccessPolicy::default()).unwrap_err();
    assert_eq!(error, KubeconfigError::TooLarge);
}

#[test]
fn debug_output_holds_no_credentials() {
    let mut config = valid();
    config["users"][0]["user"]["client-certificate-data"] = json!("Y2VydA==");
    config["users"][0]["user"]["client-key-data"] = json!("a2V5");
    let shown = format!("{:?}", parse(&config).unwrap());
    assert_eq!(shown, "Kubeconfig { server: \"api.example.org:6443\", .. }");
}
