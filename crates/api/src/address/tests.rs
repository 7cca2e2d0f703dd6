use super::AddressRefusal::{LinkLocal, Loopback, Metadata, Multicast, Private, Unspecified};
use super::*;

const ALL: AddressRules =
    AddressRules { allow_loopback: true, allow_link_local: true, allow_metadata: true, allow_private: true };

fn at(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), 443)
}

fn check(rules: AddressRules, ip: &str) -> Result<(), AddressRefusal> {
    rules.check(at(ip), &[])
}

const REFUSED: &[(&str, AddressRefusal)] = &[
    ("127.0.0.1", Loopback),
    ("127.8.9.10", Loopback),
    ("::1", Loopback),
    ("169.254.1.1", LinkLocal),
    ("fe80::1", LinkLocal),
    ("febf::1", LinkLocal),
    ("169.254.169.254", Metadata),
    ("169.254.170.2", Metadata),
    ("169.254.170.23", Metadata),
    ("169.254.169.253", Metadata),
    ("169.254.42.42", Metadata),
    ("169.254.0.23", Metadata),
    ("100.100.100.200", Metadata),
    ("168.63.129.16", Metadata),
    ("192.0.0.192", Metadata),
    ("fd00:ec2::254", Metadata),
    ("fd00:ec2::23", Metadata),
    ("fd00:ec2::253", Metadata),
    ("fd20:ce::254", Metadata),
    ("fd00:42::42", Metadata),
    ("fd00:a9fe:a9fe::1", Metadata),
    ("fe80::a9fe:a9fe", Metadata),
    ("0.0.0.0", Unspecified),
    ("0.1.2.3", Unspecified),
    ("::", Unspecified),
    ("224.0.0.1", Multicast),
    ("255.255.255.255", Multicast),
    ("ff02::1", Multicast),
    ("10.0.0.1", Private),
    ("172.31.0.1", Private),
    ("192.168.1.1", Private),
    ("100.64.0.1", Private),
    ("198.18.0.1", Private),
    ("240.0.0.1", Private),
    ("fd12::1", Private),
    ("fec0::1", Private),
];

#[test]
fn every_special_address_is_refused_by_default() {
    for (ip, refusal) in REFUSED {
        assert_eq!(check(AddressRules::default(), ip), Err(*refusal), "{ip}");
    }
}

/// Returns the forms in which an IPv6 address embeds an IPv4 address.
fn forms(ip: Ipv4Addr) -> Vec<String> {
    let [a, b, c, d] = ip.octets();
    let [high, low] = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
    vec![
        format!("::{ip}"),
        format!("::ffff:{ip}"),
        format!("::ffff:0:{ip}"),
        format!("64:ff9b::{ip}"),
        format!("64:ff9b:1::{ip}"),
        format!("64:ff9b:1:{high:x}:{c:x}:{d:x}00::"),
        format!("64:ff9b:1:{a:x}:{b:x}:{low:x}::"),
        format!("64:ff9b:1:0:{a:x}:{b:02x}{c:02x}:{d:x}00:0"),
        format!("64:ff9b:1:808:8:808:{high:x}:{low:x}"),
        format!("2002:{high:x}:{low:x}::"),
        format!("2002:{high:x}:{low:x}::1:2"),
        format!("2001:0:{high:x}:{low:x}:8000:63bf:34ff:8ef8"),
        format!("2001:0:cb00:7107:8000:63bf:{:x}:{:x}", !high, !low),
        format!("2001:db8::5efe:{ip}"),
        format!("2001:db8::200:5efe:{ip}"),
        format!("2001:db8:1:2:100:5efe:{ip}"),
    ]
}

#[test]
fn an_ipv4_address_inside_an_ipv6_address_is_refused_as_itself() {
    for (ip, refusal) in REFUSED {
        let Ok(v4) = ip.parse::<Ipv4Addr>() else { continue };
        if *refusal == Unspecified {
            continue;
        }
        for form in forms(v4) {
            assert_eq!(check(AddressRules::default(), &form), Err(*refusal), "{form} for {ip}");
        }
    }
    for form in ["::ffff:0.0.0.0", "::0.1.2.3", "64:ff9b::", "2002::1"] {
        assert_eq!(check(ALL, form), Err(Unspecified), "{form}");
    }
}

#[test]
fn public_addresses_are_accepted_in_every_form() {
    for ip in ["203.0.113.7", "2001:db8::1", "2a00:1450::1", "192.0.2.1"] {
        assert_eq!(check(AddressRules::default(), ip), Ok(()), "{ip}");
    }
    for form in forms(Ipv4Addr::new(203, 0, 113, 7)) {
        assert_eq!(check(AddressRules::default(), &form), Ok(()), "{form}");
    }
}

#[test]
fn a_rule_allows_its_own_range_only() {
    let loopback = AddressRules { allow_loopback: true, ..AddressRules::default() };
    let link_local = AddressRules { allow_link_local: true, ..AddressRules::default() };
    let metadata = AddressRules { allow_metadata: true, ..AddressRules::default() };
    let private = AddressRules { allow_private: true, ..AddressRules::default() };
    for (rules, own) in
        [(loopback, Loopback), (link_local, LinkLocal), (metadata, Metadata), (private, Private)]
    {
        for (ip, refusal) in REFUSED {
            let expected = if *refusal == own { Ok(()) } else { Err(*refusal) };
            assert_eq!(check(rules, ip), expected, "{ip} with {own:?} allowed");
        }
    }
}

#[test]
fn the_hub_is_refused_by_address_and_port_in_every_form() {
    let hub = [SocketAddr::new(v4(203, 0, 113, 7), 443)];
    for form in forms(Ipv4Addr::new(203, 0, 113, 7)) {
        assert_eq!(ALL.check(at(&form), &hub), Err(AddressRefusal::Hub), "{form}");
    }
    assert_eq!(ALL.check("203.0.113.7:444".parse().unwrap(), &hub), Ok(()));
}
