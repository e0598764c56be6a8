use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Builds an index over these names and contents, in order.
fn index(docs: &[(&str, &str)]) -> (Index, Vec<DocId>) {
    let mut index = Index::default();
    let ids = docs
        .iter()
        .map(|(name, content)| index.add([(Field::Name, *name), (Field::Content, *content)]))
        .collect();
    (index, ids)
}

/// Returns the positions in `docs` of the matches of a query, the best first.
fn find(docs: &[(&str, &str)], query: &str) -> Vec<usize> {
    let (index, ids) = index(docs);
    let mut hits = index.search(&SearchQuery::parse(query).unwrap(), |_| true);
    hits.sort_by(|one, other| other.score.total_cmp(&one.score));
    let place = |hit: &Hit| ids.iter().position(|id| *id == hit.doc).unwrap();
    hits.iter().map(place).collect()
}

const DOCS: &[(&str, &str)] = &[
    ("send_email", "Send an email over SMTP"),
    ("read_mail", "Read mail; the sender, the subject"),
    ("rate-limit", "Limit the rate of calls"),
    ("limits", "The rate limit of the API, and other limits"),
];

#[test]
fn words_join_by_and_or_and_not() {
    for (query, found) in [
        ("email", vec![0]),
        ("EMAIL smtp", vec![0]),
        ("email AND mail", vec![]),
        ("email OR mail", vec![0, 1]),
        ("the NOT mail", vec![2, 3]),
        ("(email or mail) and sender", vec![1]),
        ("mail*", vec![1]),
        ("lim*", vec![2, 3]),
        ("\"rate limit\"", vec![2, 3]),
        ("\"limit the rate\"", vec![2]),
        ("rate-limit", vec![2, 3]),
        ("\"rate of the limit\"", vec![]),
        ("\"not\" OR smtp", vec![0]),
        ("!!! smtp ...", vec![0]),
    ] {
        let places: BTreeSet<usize> = find(DOCS, query).into_iter().collect();
        assert_eq!(places, found.into_iter().collect(), "{query}");
    }
    assert_eq!(find(DOCS, "").len(), DOCS.len());
}

#[test]
fn names_and_rare_words_rank_higher() {
    let docs = &[
        ("a", "bread bread butter"),
        ("bread", "flour"),
        ("b", "bread"),
        ("c", "saffron bread bread bread"),
    ];
    assert_eq!(find(docs, "bread")[0], 1);
    assert_eq!(find(docs, "bread OR saffron")[0], 3);
}

#[test]
fn unknown_word_matches_similar_words() {
    assert_eq!(find(DOCS, "emial"), [0; 0], "two letters differ");
    assert_eq!(find(DOCS, "emall"), [0]);
    assert_eq!(find(DOCS, "emaill"), [0]);
    assert_eq!(find(DOCS, "snder"), [1]);
    assert_eq!(find(DOCS, "xpi"), [0; 0], "a short word is itself");
    let (index, _) = index(DOCS);
    let best = |query| index.search(&SearchQuery::parse(query).unwrap(), |_| true)[0].score;
    assert!(best("emall") < best("email"));
}

#[test]
fn hidden_documents_are_not_found() {
    let (index, ids) = index(DOCS);
    let query = SearchQuery::parse("rate").unwrap();
    let hits = index.search(&query, |doc| doc == ids[3]);
    assert_eq!(hits.len(), 1);
}

#[test]
fn removed_document_frees_its_number() {
    let (mut index, ids) = index(DOCS);
    let before = index.bytes();
    index.remove(ids[0]);
    index.remove(ids[0]);
    assert!(index.bytes() < before);
    let query = SearchQuery::parse("smtp").unwrap();
    assert!(index.search(&query, |_| true).is_empty());
    let again = index.add([(Field::Title, "SMTP")]);
    assert_eq!(again, ids[0]);
    assert_eq!(index.search(&query, |_| true).len(), 1);
    assert_eq!(
        index
            .search(&SearchQuery::parse("").unwrap(), |_| true)
            .len(),
        4
    );
}

#[test]
fn invalid_queries_are_refused_with_reason() {
    let deep = "(".repeat(40) + "a" + &")".repeat(40);
    let nots = "NOT ".repeat(10_000);
    let long = "a ".repeat(600_000);
    for (query, told) in [
        ("(a", "does not close a parenthesis"),
        ("a)", "not opened"),
        ("a AND", "nothing to look for"),
        ("OR a", "nothing to look for"),
        ("()", "nothing to look for"),
        ("\"a", "quotation mark"),
        (&deep, "nested"),
        (&nots[..4_000], "nested"),
        (&nots, "longer"),
        (&long, "longer"),
    ] {
        let error = SearchQuery::parse(query).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
    // Many operators in sequence add no depth.
    let wide = "a OR ".repeat(800) + "a";
    assert!(SearchQuery::parse(&wide).is_ok());
}

/// Evaluates a query without parentheses by hand, as an `OR` of `AND`s. Words here are too short for fuzzy matches.
fn fits(query: &str, words: &[&str]) -> bool {
    let fits = |leaf: &str| match leaf.strip_prefix("NOT ") {
        Some(word) => !words.contains(&word),
        None => words.contains(&leaf),
    };
    query
        .split(" OR ")
        .any(|part| part.split(" AND ").all(fits))
}

proptest! {
    #[test]
    fn index_agrees_with_full_scan(
        docs in prop::collection::vec("[abc]{1,2}( [abc]{1,2}){0,4}", 1..8),
        removed in prop::collection::vec(any::<bool>(), 8),
        query in "[abc]{1,2}( (AND|OR) (NOT )?[abc]{1,2}){0,3}",
    ) {
        let mut index = Index::default();
        let ids: Vec<DocId> = docs.iter().map(|text| index.add([(Field::Content, text.as_str())])).collect();
        for (id, removed) in ids.iter().zip(&removed) {
            if *removed {
                index.remove(*id);
            }
        }
        let hits = index.search(&SearchQuery::parse(&query).unwrap(), |_| true);
        let found: BTreeSet<DocId> = hits.iter().map(|hit| hit.doc).collect();
        let expected: BTreeSet<DocId> = docs.iter().zip(&ids).zip(&removed)
            .filter(|((text, _), removed)| !**removed && fits(&query, &text.split(' ').collect::<Vec<_>>()))
            .map(|((_, id), _)| *id)
            .collect();
        prop_assert_eq!(found, expected, "{}", query);
        prop_assert!(hits.is_sorted_by(|one, other| one.doc < other.doc));
    }

    #[test]
    fn query_parser_never_panics(text in "\\PC{0,200}") {
        drop(SearchQuery::parse(&text));
    }
}
