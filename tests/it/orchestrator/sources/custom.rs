//! Custom sources: the name rule as a property over any sources, and limits for a hostile source.

use std::collections::BTreeSet;
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use caproot_core::proto::caproot::v1::{Authority, Skill};
use caproot_session::sources::{SkillListing, SourceSnapshot, TextPage, TextPageRequest};
use caproot_session::{SkillSource, SourceKind, ToolError};
use futures_util::future::BoxFuture;
use proptest::prelude::*;
use serde_json::json;

use super::super::session::{call, list_all};
use super::{arguments, read_error, start_session};

/// Response to a read. `None` never answers.
type ReadResponse = fn(&TextPageRequest) -> Option<TextPage>;

#[derive(Debug, Clone)]
struct CustomSource {
    kind: SourceKind,
    id: String,
    names: Vec<String>,
    unavailable: bool,
    page: ReadResponse,
}

impl CustomSource {
    fn new(kind: SourceKind, id: &str, names: &[&str]) -> Self {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            kind,
            id: id.to_owned(),
            names,
            unavailable: false,
            page: |_| None,
        }
    }

    fn package(&self, name: &str) -> String {
        format!("odd://{}/{}/{name}", self.kind.name(), self.id)
    }
}

impl SkillSource for CustomSource {
    fn kind(&self) -> SourceKind {
        self.kind
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn authorities(&self) -> Vec<String> {
        vec![self.id.clone()]
    }

    fn snapshot(&self) -> SourceSnapshot {
        let kind = self.kind.name().to_owned();
        let skill = |name: &String| {
            Arc::new(Skill {
                authority: Some(Authority {
                    kind: kind.clone(),
                    id: self.id.clone(),
                }),
                package: self.package(name),
                main_resource: format!("{}/SKILL.md", self.package(name)),
                name: name.clone(),
                user_invocable: true,
                ..Skill::default()
            })
        };
        let skills = self.names.iter().map(skill).collect();
        SourceSnapshot {
            listing: Arc::new(SkillListing {
                skills,
                ..SkillListing::default()
            }),
            unavailable_reason: self.unavailable.then(|| "it is away".to_owned()),
        }
    }

    fn read_timeout(&self) -> Duration {
        Duration::from_millis(50)
    }

    fn read_page<'a>(
        &'a self,
        request: &'a TextPageRequest,
    ) -> BoxFuture<'a, Result<TextPage, ToolError>> {
        match (self.page)(request) {
            Some(page) => Box::pin(ready(Ok(page))),
            None => Box::pin(pending()),
        }
    }
}

fn any_source(at: usize) -> impl Strategy<Value = CustomSource> {
    let names = prop::collection::btree_set("[a-f]", 0..4);
    let kind = prop::sample::select(SourceKind::ALL.to_vec());
    (kind, names, prop::bool::weighted(0.3)).prop_map(move |(kind, names, unavailable)| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        CustomSource {
            unavailable,
            ..CustomSource::new(kind, &format!("s{at}"), &names)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_name_belongs_to_the_earliest_kind(
        sources in (any_source(0), any_source(1), any_source(2), any_source(3)),
    ) {
        let sources = [sources.0, sources.1, sources.2, sources.3];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let (packages, warnings) = runtime.expect("a runtime").block_on(async {
            let shared = sources.iter().map(|source| Arc::new(source.clone()) as Arc<dyn SkillSource>);
            list_all(&start_session(shared.collect()).await).await
        });
        let is_taken = |source: &CustomSource, name: &String| {
            sources.iter().any(|other| other.kind < source.kind && other.names.contains(name))
        };
        let mut expected = BTreeSet::new();
        for source in &sources {
            let of_it = warnings.iter().filter(|w| w.contains(&format!("{:?}", source.id)));
            let taken = source.names.iter().any(|name| is_taken(source, name));
            prop_assert_eq!(of_it.count(), usize::from(source.unavailable || taken));
            if !source.unavailable {
                let free = source.names.iter().filter(|name| !is_taken(source, name));
                expected.extend(free.map(|name| source.package(name)));
            }
        }
        let listed: BTreeSet<String> = packages.iter().cloned().collect();
        prop_assert_eq!(listed.len(), packages.len());
        prop_assert_eq!(listed, expected);
    }
}

#[tokio::test]
async fn invalid_pages_of_a_custom_source_are_rejected() {
    // The response, and the expected error code; `None` if the response is valid.
    let cases: [(ReadResponse, Option<&str>); 5] = [
        (|_| None, Some("SOURCE_UNAVAILABLE")),
        (
            |request| Some(text_page(request, "x".repeat(request.max_bytes + 1), "")),
            Some("INVALID_RESPONSE"),
        ),
        (
            |request| Some(text_page(request, "x".to_owned(), &"c".repeat(513))),
            Some("INVALID_RESPONSE"),
        ),
        (
            |request| Some(text_page(request, String::new(), "more")),
            Some("INVALID_RESPONSE"),
        ),
        (
            |request| Some(text_page(request, "\u{1}".repeat(request.max_bytes), "")),
            None,
        ),
    ];
    for (page, code) in cases {
        let source = CustomSource {
            page,
            ..CustomSource::new(SourceKind::Mcp, "odd", &["a"])
        };
        let read = arguments("mcp", "odd", &source.package("a"), "");
        let session = start_session(vec![Arc::new(source)]).await;
        match code {
            Some(code) => assert_eq!(read_error(&session, read).await.0, code),
            None => assert!(call(&session, "skills.read", read).await["contents"].is_string()),
        }
        assert_eq!(
            call(&session, "skills.list", json!({})).await["skills"][0]["name"],
            "a"
        );
    }
}

fn text_page(request: &TextPageRequest, contents: String, next_cursor: &str) -> TextPage {
    let resource = format!("{}/SKILL.md", request.package);
    TextPage {
        resource,
        contents,
        next_cursor: next_cursor.to_owned(),
        digest: String::new(),
    }
}
