//! The header `Link` (RFC 8288).

/// Returns the address of the first link with the relation `next`.
pub(super) fn next_target(links: &str) -> Option<&str> {
    let mut rest = links;
    loop {
        let (_, after) = rest.split_once('<')?;
        let (target, after) = after.split_once('>')?;
        let (params, further) = after.split_at(end_of_params(after));
        if params.split(';').any(is_next) {
            return Some(target);
        }
        rest = further;
    }
}

/// Returns the position of the comma before the next link. Addresses and quoted values may have commas too.
fn end_of_params(text: &str) -> usize {
    let mut is_quoted = false;
    let end = text.find(|character: char| {
        is_quoted ^= character == '"';
        !is_quoted && character == ','
    });
    end.unwrap_or(text.len())
}

/// Returns whether a parameter is `rel`, and `next` is among its relations.
fn is_next(param: &str) -> bool {
    let Some((name, relations)) = param.split_once('=') else { return false };
    let mut relations = relations.trim().trim_matches('"').split_ascii_whitespace();
    name.trim().eq_ignore_ascii_case("rel") && relations.any(|relation| relation.eq_ignore_ascii_case("next"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_found_among_all_forms_of_links() {
        let page = "/v2/a/tags/list?last=1.0.0&n=2";
        for link in [
            format!("<{page}>; rel=\"next\""),
            format!("<{page}>;rel=next"),
            format!("<{page}> ; Rel = \"NEXT\""),
            format!("<{page}>; rel=\"last next\""),
            format!("<{page}>; title=\"a, b\"; rel=\"next\""),
            format!("</first>; rel=first, <{page}>; rel=next"),
            format!("</v2/a,b>; rel=\"prev\"; title=\"<x>, y\", <{page}>; rel=\"next\""),
        ] {
            assert_eq!(next_target(&link), Some(page), "{link}");
        }
        assert_eq!(next_target("</v2/a?token=x,y>; rel=\"next\""), Some("/v2/a?token=x,y"));
        for link in ["", "</v2/a>", "</v2/a>; rel=prev", "</v2/a>; title=\"rel=next\"", "</v2/a; rel=next"] {
            assert_eq!(next_target(link), None, "{link}");
        }
    }
}
