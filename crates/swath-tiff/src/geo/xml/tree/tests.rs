use super::*;
use crate::geo::{problems::Problems, xml::text::decode};

fn parse(source: &str) -> Result<Tree<'_>, XmlError> {
    Tree::parse(source, Bounds::default())
}

#[test]
fn node_stays_within_the_documented_size() {
    assert!(size_of::<Node<'_>>() <= 48, "{}", size_of::<Node<'_>>());
}

#[test]
fn refuses_entity_bomb_before_any_entity_is_read() {
    let mut bomb = String::from("<!DOCTYPE a [<!ENTITY e0 \"ha\">");
    for i in 1..30 {
        bomb.push_str(&format!("<!ENTITY e{i} \"&e{};&e{};\">", i - 1, i - 1));
    }
    bomb.push_str("]><a>&e29;</a>");
    assert_eq!(parse(&bomb).unwrap_err(), XmlError::DocumentType { offset: 0 });
}

#[test]
fn refuses_external_entity_and_external_subset() {
    for source in [
        "<!DOCTYPE a SYSTEM \"file:///etc/passwd\"><a/>",
        "<!DOCTYPE a [<!ENTITY x SYSTEM \"http://127.0.0.1/\">]><a>&x;</a>",
        "<?xml version=\"1.0\"?><!DOCTYPE a PUBLIC \"-//x\" \"http://127.0.0.1/x.dtd\"><a/>",
        "<a><!DOCTYPE b [<!ENTITY x \"y\">]>&x;</a>",
    ] {
        assert!(matches!(parse(source), Err(XmlError::DocumentType { .. })), "{source}");
    }
}

#[test]
fn undefined_entity_cuts_the_text_and_expands_to_nothing() {
    let tree = parse("<a>x &e; y</a>").unwrap();
    let text = tree.root().value().unwrap();
    assert_eq!((text.unescaped.as_ref(), text.cut), ("x ", true));
}

#[test]
fn refuses_nesting_past_the_limit_without_recursion() {
    let deep = "<a>".repeat(100_000) + &"</a>".repeat(100_000);
    assert_eq!(parse(&deep).unwrap_err(), XmlError::TooDeep { offset: 256 * 3, limit: 256 });
    let bounds = Bounds { depth: 100_000, ..Bounds::default() };
    assert!(Tree::parse(&deep, bounds).is_ok(), "a caller may allow it, and dropping the tree does not recurse");
}

#[test]
fn refuses_more_nodes_than_the_limit() {
    let bounds = Bounds { nodes: 1000, ..Bounds::default() };
    let elements = format!("<a>{}</a>", "<b/>".repeat(1000));
    assert!(matches!(Tree::parse(&elements, bounds), Err(XmlError::TooMany { limit: 1000, .. })));
    let attributes = format!("<a {}/>", "b='' ".repeat(1000));
    assert!(matches!(Tree::parse(&attributes, bounds), Err(XmlError::TooMany { limit: 1000, .. })));
    let comments = format!("<a>{}</a>", "<!---->".repeat(1000));
    assert!(matches!(Tree::parse(&comments, bounds), Err(XmlError::TooMany { limit: 1000, .. })));
}

#[test]
fn many_distinct_attributes_take_linear_time() {
    let attributes: String = (0..200_000).map(|i| format!("a{i}='' ")).collect();
    let start = std::time::Instant::now();
    assert!(parse(&format!("<a {attributes}/>")).is_ok());
    assert!(start.elapsed().as_secs() < 5);
}

#[test]
fn refuses_document_over_the_byte_limit_unread() {
    let mut problems = Problems::default();
    let long = vec![b'x'; 101];
    let error = decode(&long, Bounds::default().with_bytes(100), &mut problems).unwrap_err();
    assert_eq!(error, XmlError::TooLong { len: 101, limit: 100 });
}

#[test]
fn every_truncation_of_a_document_is_refused() {
    let whole = "<?xml version='1.0'?><!-- c --><a b='c' d=\"e\"><f><![CDATA[g]]></f>&lt;&#65;<h/></a>";
    assert!(parse(whole).is_ok());
    for end in 0..whole.len() {
        assert!(parse(&whole[..end]).is_err(), "{}", &whole[..end]);
    }
}

#[test]
fn latin1_bytes_become_letters_and_utf8_beside_them_stays() {
    let mut problems = Problems::default();
    let text = decode(b"caf\xe9 \xc3\xa9 \xff", Bounds::default(), &mut problems).unwrap();
    assert_eq!(text, "café é ÿ");
    assert_eq!(problems.finish().len(), 1);
}

#[test]
fn text_after_nul_is_dropped_and_only_real_text_is_reported() {
    let mut problems = Problems::default();
    assert_eq!(decode(b"<a/>\0\0", Bounds::default(), &mut problems).unwrap(), "<a/>");
    assert!(problems.list().is_empty());
    assert_eq!(decode(b"<a/>\0x", Bounds::default(), &mut problems).unwrap(), "<a/>");
    assert_eq!(problems.list().len(), 1);
}

#[test]
fn unescape_matches_what_gdal_was_seen_to_do() {
    for (raw, want, cut) in [
        ("a&b", "a", true),
        ("a & b", "a ", true),
        ("a&", "a", true),
        ("a&;b", "a", true),
        ("a&AMP;b", "a&b", false),
        ("a&Lt;b", "a<b", false),
        ("a&apos;&quot;b", "a'\"b", false),
        ("a&#;b", "ab", false),
        ("a&#xZZ;b", "a", true),
        ("a&#0;b", "ab", false),
        ("a&#xD800;b", "a\u{fffd}b", false),
        ("a&#99999999999;b", "a\u{fffd}b", false),
        ("a&#233;&#x1F600;&#X41;", "aé😀A", false),
        ("a&#65b", "a", true),
        ("a&#6 5;b", "a", true),
        ("a&#é;", "a", true),
        ("a&lt b", "a", true),
        ("a&#-5;b", "a", true),
    ] {
        assert_eq!(unescape(raw), (Cow::from(want), cut), "{raw}");
    }
}

#[test]
fn leading_space_goes_trailing_space_and_line_ends_stay() {
    let tree = parse("<a>\r\n x \r\n y \r\n</a>").unwrap();
    assert_eq!(tree.root().value().unwrap().unescaped, "x \r\n y \r\n");
    assert!(parse("<a> \n </a>").unwrap().root().value().is_none());
    assert_eq!(parse("<a> <![CDATA[ <&amp; ]]> </a>").unwrap().root().value().unwrap().unescaped, " <&amp; ");
}

#[test]
fn text_beside_anything_else_is_no_value() {
    for source in
        ["<a>p<!-- c --></a>", "<a><!-- c -->p</a>", "<a><?x?>p</a>", "<a>p<b/></a>", "<a>p<![CDATA[q]]></a>", "<a/>"]
    {
        assert!(parse(source).unwrap().root().value().is_none(), "{source}");
    }
}

#[test]
fn end_tag_of_another_element_is_refused_but_case_is_not() {
    assert!(parse("<a><b></a></b>").is_err());
    assert!(parse("</a>").is_err());
    assert!(parse("<Item></ITEM >").is_ok());
}

#[test]
fn attribute_without_value_or_quotes_is_refused() {
    assert!(parse("<a b>c</a>").is_err());
    assert!(parse("<a b=c>d</a>").is_err());
    assert!(parse("<a b=\"c>d</a>").is_err());
}

#[test]
fn angle_brackets_inside_quotes_stay_in_the_attribute() {
    let tree = parse("<a b=\"x>y<z\" B='second'/>").unwrap();
    assert_eq!(tree.root().attribute("b").unwrap(), "x>y<z");
}

#[test]
fn no_prefix_of_random_markup_panics() {
    // a small linear congruential generator: the point is odd neighbours, not randomness
    let pieces = [
        "<",
        ">",
        "/",
        "a",
        "=",
        "\"",
        "'",
        "&",
        ";",
        "#",
        "x",
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "<?",
        "?>",
        "é",
        "\n",
        "<!",
        "DOCTYPE",
        " ",
    ];
    let mut seed = 1_u32;
    for _ in 0..50_000 {
        let mut source = String::from("<a>");
        for _ in 0..(seed >> 27) {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            source.push_str(pieces[(seed >> 16) as usize % pieces.len()]);
        }
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if let Ok(tree) = parse(&source) {
            let _ = (tree.root().value(), tree.root().inner(), tree.root().attribute("a"));
        }
    }
}
