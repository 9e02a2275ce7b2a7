//! Choice of a session's skills: rules that include or exclude skills by name, handle or source, and
//! rules for their place in the texts for a model.

use crate::skills::selection::SelectionError;
use crate::skills::skill::SharedSkill;
use crate::skills::skill_source::{SkillSource, SourceKind, SourceSnapshot};
use caproot_core::proto::caproot::v1::NotOffered;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter;
use std::str::FromStr;
use std::sync::Arc;

/// Limit of the rules of a choice.
const MAX_CHOICE_RULES: usize = 256;
/// Limit of a rule in bytes: a handle of 2,048 bytes and the prefix.
const MAX_RULE_BYTES: usize = 2_100;

/// Skills that a session has, out of all skills of its sources. An excluded skill is not listed,
/// cannot be read or mentioned, and its name is free for a skill of another source. The default
/// includes every skill. A choice has at most 256 rules. In a fork, the name of an excluded skill is not
/// free: a fork has no skill that its session does not have.
///
/// ```
/// use caproot_session::{ChoiceRule, SessionOptions, SkillChoice};
///
/// let choice = SkillChoice {
///     include: vec!["source:executor/workspace".parse()?, "handle:skill://team/deploy".parse()?],
///     exclude: vec![ChoiceRule::Name("pdf".to_owned())],
///     ..SkillChoice::default()
/// };
/// let options = SessionOptions { choice, ..SessionOptions::default() };
/// # assert_eq!(options.choice.exclude[0].to_string(), "name:pdf");
/// # Ok::<(), caproot_session::ChoiceRuleError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkillChoice {
    /// Rules that include skills. Empty: every skill is included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<ChoiceRule>,
    /// Rules that exclude skills. They take precedence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<ChoiceRule>,
    /// Rules of skills that the instruction text never cuts while it has a skill without such a rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pin: Vec<ChoiceRule>,
    /// Rules of skills that the instruction text lists without a description.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub name_only: Vec<ChoiceRule>,
    /// Rules of skills that are hidden from models, as if their author had said so. A person or the
    /// program may still name such a skill.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manual: Vec<ChoiceRule>,
    /// Rules of skills that the session offers to models although they are switched off by default. A
    /// skill that its author reserves for people, or that its plugin does not list, stays hidden.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enable: Vec<ChoiceRule>,
    /// Product whose skills are included, next to skills for every product. Empty: all skills. A session
    /// has its product in its options, and a fork may have another one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub product: String,
    /// Choice that must include the skill as well, and whose other rules apply too: the choice of the
    /// session that was forked. Only the innermost choice makes the names of its excluded skills free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Box<Self>>,
}

/// Display of a skill in the texts for a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SkillDisplay {
    pub is_pinned: bool,
    pub is_name_only: bool,
    /// Reason why the skill is not offered to models.
    pub not_offered: NotOffered,
}

/// Rule of a [`SkillChoice`]. Displays as its text, and a text parses as the rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ChoiceRule {
    /// `name:pdf`: every skill and every plugin with this name.
    Name(String),
    /// `handle:skill://team/deploy`: the skill or plugin with this handle, and those below it.
    /// `handle:skill://team` is all of the root `team`.
    Handle(String),
    /// `source:mcp/docs`: all skills of a source, by its kind (`executor`, `local`, `mcp`, `site`) and id.
    Source(SourceKind, String),
}

/// Invalid text of a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid rule {0:?}: expected name:NAME, handle:HANDLE or source:KIND/ID, where KIND is \
     executor, local, mcp or site"
)]
pub struct ChoiceRuleError(String);

impl ChoiceRule {
    /// Parses the texts of rules, and adds a sentence for each invalid rule to `mistakes`.
    ///
    /// ```
    /// use caproot_session::ChoiceRule;
    ///
    /// let mut mistakes = Vec::new();
    /// let rules = ChoiceRule::parse_all(&["name:pdf".to_owned(), "pdf".to_owned()], &mut mistakes);
    /// assert_eq!((rules.len(), mistakes.len()), (1, 1));
    /// ```
    pub fn parse_all(texts: &[String], mistakes: &mut Vec<String>) -> Vec<Self> {
        let mut rules = Vec::with_capacity(texts.len());
        for text in texts {
            match text.parse() {
                Ok(rule) => rules.push(rule),
                Err(error) => mistakes.push(format!("choice: {error}")),
            }
        }
        rules
    }

    /// Returns whether the rule matches a skill or plugin of a source, given by its kind and id.
    fn matches(&self, kind: SourceKind, id: &str, name: &str, package: &str) -> bool {
        match self {
            Self::Name(chosen) => chosen == name,
            Self::Handle(handle) => package
                .strip_prefix(handle.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
            Self::Source(chosen_kind, chosen_id) => *chosen_kind == kind && chosen_id == id,
        }
    }
}

impl fmt::Display for ChoiceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "name:{name}"),
            Self::Handle(handle) => write!(f, "handle:{handle}"),
            Self::Source(kind, id) => write!(f, "source:{}/{id}", kind.name()),
        }
    }
}

fn any_matches(rules: &[ChoiceRule], source: &dyn SkillSource, skill: &SharedSkill) -> bool {
    rules
        .iter()
        .any(|rule| rule.matches(source.kind(), source.id(), &skill.name, &skill.package))
}

impl FromStr for ChoiceRule {
    type Err = ChoiceRuleError;

    fn from_str(text: &str) -> Result<Self, ChoiceRuleError> {
        parse_rule(text).ok_or_else(|| ChoiceRuleError(text.chars().take(100).collect()))
    }
}

fn parse_rule(text: &str) -> Option<ChoiceRule> {
    let (prefix, value) = text.split_once(':')?;
    if value.is_empty() || text.len() > MAX_RULE_BYTES {
        return None;
    }

    match prefix {
        "name" => Some(ChoiceRule::Name(value.to_owned())),
        "handle" if value.contains("://") => {
            // A handle of a main resource means the skill.
            let package = value.strip_suffix("/SKILL.md").unwrap_or(value);
            Some(ChoiceRule::Handle(package.trim_end_matches('/').to_owned()))
        }
        "source" => {
            let (kind_name, id) = value.split_once('/').filter(|(_, id)| !id.is_empty())?;
            let kind = SourceKind::ALL
                .into_iter()
                .find(|kind| kind.name() == kind_name)?;
            Some(ChoiceRule::Source(kind, id.to_owned()))
        }
        _ => None,
    }
}

impl TryFrom<String> for ChoiceRule {
    type Error = ChoiceRuleError;

    fn try_from(text: String) -> Result<Self, ChoiceRuleError> {
        text.parse()
    }
}

impl From<ChoiceRule> for String {
    fn from(rule: ChoiceRule) -> Self {
        rule.to_string()
    }
}

impl SkillChoice {
    /// Returns whether the choice has no rule and no product, and so includes every skill.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rule_count() == 0 && self.levels().all(|choice| choice.product.is_empty())
    }

    /// Returns the choice and the choices that it is within, to the innermost.
    fn levels(&self) -> impl Iterator<Item = &Self> {
        iter::successors(Some(self), |choice| choice.within.as_deref())
    }

    /// Returns the choice of the skills that both choices include, with the other rules of both.
    #[must_use]
    pub fn narrowed_to(&self, narrower: &Self) -> Self {
        if narrower.is_empty() {
            return self.clone();
        }

        let within = match &narrower.within {
            Some(inner) => self.narrowed_to(inner),
            None => self.clone(),
        };
        // Without rules, too: the names that the excluded skills have must stay masked.
        Self {
            within: Some(Box::new(within)),
            ..narrower.clone()
        }
    }

    /// Returns the innermost choice: that of the session from which all forks come.
    pub(crate) fn base(&self) -> &Self {
        self.levels().last().unwrap_or(self)
    }

    fn rule_count(&self) -> usize {
        self.levels()
            .flat_map(|choice| {
                [
                    &choice.include,
                    &choice.exclude,
                    &choice.pin,
                    &choice.name_only,
                    &choice.manual,
                    &choice.enable,
                ]
            })
            .map(Vec::len)
            .sum()
    }

    pub(crate) fn check(&self) -> Result<(), SelectionError> {
        let count = self.rule_count();
        if count > MAX_CHOICE_RULES {
            let error = format!("the choice has {count} rules; the limit is {MAX_CHOICE_RULES}");
            return Err(SelectionError(vec![error]));
        }
        Ok(())
    }

    /// Returns whether a skill of a source is in the session.
    pub(crate) fn includes_skill(&self, source: &dyn SkillSource, skill: &SharedSkill) -> bool {
        let products = &skill.products;
        let mut chosen = self.levels().map(|choice| &choice.product);
        self.includes(source, &skill.name, &skill.package)
            && (products.is_empty()
                || chosen.all(|product| product.is_empty() || products.contains(product)))
    }

    /// Returns whether the rules include a skill or plugin of a source.
    pub(crate) fn includes(&self, source: &dyn SkillSource, name: &str, package: &str) -> bool {
        let matches = |rule: &ChoiceRule| rule.matches(source.kind(), source.id(), name, package);
        self.levels().all(|choice| {
            let is_included = choice.include.is_empty() || choice.include.iter().any(matches);
            is_included && !choice.exclude.iter().any(matches)
        })
    }

    /// Returns whether the rules may include a skill of a source with this name and any handle.
    pub(crate) fn may_include_name(&self, source: &dyn SkillSource, name: &str) -> bool {
        let matches = |rule: &ChoiceRule, of_handle| match rule {
            ChoiceRule::Handle(_) => of_handle,
            rule => rule.matches(source.kind(), source.id(), name, ""),
        };
        let is_included =
            self.include.is_empty() || self.include.iter().any(|rule| matches(rule, true));
        is_included && !self.exclude.iter().any(|rule| matches(rule, false))
    }

    /// Returns how the texts for a model show a skill.
    pub(crate) fn display_of(&self, source: &dyn SkillSource, skill: &SharedSkill) -> SkillDisplay {
        let of_within = self.within.as_ref().map_or_else(
            || SkillDisplay {
                not_offered: skill.not_offered(),
                ..SkillDisplay::default()
            },
            |within| within.display_of(source, skill),
        );
        let not_offered = match of_within.not_offered {
            NotOffered::SwitchedOff if any_matches(&self.enable, source, skill) => {
                NotOffered::Unspecified
            }
            reason => reason,
        };
        SkillDisplay {
            is_pinned: of_within.is_pinned || any_matches(&self.pin, source, skill),
            is_name_only: of_within.is_name_only || any_matches(&self.name_only, source, skill),
            not_offered: match not_offered {
                NotOffered::Unspecified if any_matches(&self.manual, source, skill) => {
                    NotOffered::Choice
                }
                reason => reason,
            },
        }
    }

    /// Returns how many skills of a source are in the session.
    pub(crate) fn count_included(&self, source: &dyn SkillSource) -> usize {
        let listing = source.snapshot().listing;
        listing
            .skills
            .iter()
            .filter(|skill| self.includes_skill(source, skill))
            .count()
    }

    /// Returns the snapshot without the excluded skills.
    pub(crate) fn filter_snapshot(
        &self,
        source: &dyn SkillSource,
        snapshot: &SourceSnapshot,
    ) -> SourceSnapshot {
        let mut chosen = snapshot.clone();
        if !self.is_empty() {
            let listing = Arc::make_mut(&mut chosen.listing);
            listing
                .skills
                .retain(|skill| self.includes_skill(source, skill));
        }
        chosen
    }

    /// Returns a warning for each rule, apart from those that exclude, that matches no skill of these
    /// sources.
    pub(crate) fn unmatched_warnings(
        &self,
        sources: &[Arc<dyn SkillSource>],
        snapshots: &[SourceSnapshot],
    ) -> Vec<String> {
        let rules = [
            &self.include,
            &self.pin,
            &self.name_only,
            &self.manual,
            &self.enable,
        ];

        let unmatched = rules.into_iter().flatten().filter(|rule| {
            !sources.iter().zip(snapshots).any(|(source, snapshot)| {
                let (kind, id) = (source.kind(), source.id());
                snapshot
                    .listing
                    .skills
                    .iter()
                    .any(|skill| rule.matches(kind, id, &skill.name, &skill.package))
            })
        });

        unmatched
            .map(|rule| format!("no skill matches the chosen `{rule}`"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{ChoiceRule, SourceKind};
    use proptest::prelude::*;

    #[test]
    fn invalid_rules_are_rejected() {
        let long = format!("name:{}", "x".repeat(3_000));
        for bad in [
            "",
            "pdf",
            "name:",
            "names:pdf",
            "handle:team/pdf",
            "source:mcp",
            "source:mcp/",
            "source:disk/x",
            &long,
        ] {
            let error = bad.parse::<ChoiceRule>().expect_err(bad).to_string();
            assert!(error.contains("name:NAME") && error.len() < 400, "{error}");
        }
    }

    #[test]
    fn a_handle_matches_itself_and_handles_below() {
        let rule: ChoiceRule = "handle:skill://r/a/SKILL.md".parse().expect("a rule");
        let matches = |package| rule.matches(SourceKind::Executor, "e", "a", package);
        assert!(matches("skill://r/a") && matches("skill://r/a/b"));
        assert!(!matches("skill://r/ab") && !matches("skill://r"));
    }

    proptest! {
        #[test]
        fn rules_parse_as_displayed(name in "[a-z:/ ]{1,20}", id in "[a-z/:]{1,9}", kind in 0_usize..3) {
            for rule in [ChoiceRule::Name(name.clone()), ChoiceRule::Source(SourceKind::ALL[kind], id)] {
                prop_assert_eq!(rule.to_string().parse(), Ok(rule));
            }
        }

        #[test]
        fn no_text_causes_a_panic(text in "(?s).{0,60}") {
            drop(text.parse::<ChoiceRule>());
        }
    }
}
