//! List of a daemon by the directories that the skills get, with the rules for replacing and removing a
//! copy.

use crate::cli::handle_arg::bare_name;
use crate::lint::suggest_name;
use caproot_client::root_id;
use caproot_core::proto::caproot::v1::{
    Diagnostic, DiagnosticCode, ListSkillsResponse, NotOffered, RootState, RootStatus, Severity,
    Skill,
};
use caproot_core::wire::ResourceHandle;
use std::collections::BTreeMap;

/// Skills by directory, and the states of their roots.
pub struct SkillList {
    by_directory: BTreeMap<String, Vec<Skill>>,
    /// Handles of skills whose names have no letter and no digit.
    pub unnamed: Vec<String>,
    /// In the order of the selection.
    roots: Vec<RootStatus>,
    diagnostics: Vec<Diagnostic>,
}

impl SkillList {
    pub fn new(list: ListSkillsResponse) -> Self {
        let mut by_directory = BTreeMap::<_, Vec<_>>::new();
        let mut unnamed = Vec::new();
        for skill in list.skills {
            // An agent offers each skill in its directory to its model. It knows the skills for people.
            if !matches!(
                skill.not_offered(),
                NotOffered::Unspecified | NotOffered::PeopleOnly
            ) {
                continue;
            }
            match directory_name(&skill) {
                Some(name) => by_directory.entry(name).or_default().push(skill),
                None => unnamed.push(skill.package),
            }
        }
        Self {
            by_directory,
            unnamed,
            roots: list.roots,
            diagnostics: list.diagnostics,
        }
    }

    /// Returns the skills of each directory in the order of the list, and leaves none.
    pub fn take_skills(&mut self) -> BTreeMap<String, Vec<Skill>> {
        std::mem::take(&mut self.by_directory)
    }

    /// Whether each root is ready. A skill of another root may be missing.
    pub fn is_ready(&self) -> bool {
        let mut roots = self.roots.iter();
        roots.all(|root| root.state() == RootState::Ready)
    }

    /// Whether the list has each skill of the root of a package, so that a package that is not listed does
    /// not exist.
    pub fn is_complete_for(&self, package: &str) -> bool {
        self.root_index(package).is_some_and(|index| {
            let root = &self.roots[index];
            root.state() == RootState::Ready && !root.truncated && !self.may_hide_skills(root)
        })
    }

    /// Whether the lock of the daemon may hide a skill of the root. A copy of such a skill was approved.
    fn may_hide_skills(&self, root: &RootStatus) -> bool {
        let problems = self.diagnostics.iter();
        let problems = problems.filter(|problem| problem.root_id == root.id);
        let sent = problems.clone().count();
        let errors: Vec<_> = problems
            .filter(|problem| problem.severity() == Severity::Error)
            .collect();

        // Errors are sent first. If all are errors, errors that were not sent may be about hidden skills.
        let total = root.counts.map_or(0, |counts| counts.diagnostics as usize);
        let is_cut = sent > 0 && sent < total && sent == errors.len();
        is_cut
            || errors.iter().any(|error| {
                matches!(
                    error.code(),
                    DiagnosticCode::PackageChanged | DiagnosticCode::PackagesNotApproved
                )
            })
    }

    /// Whether the skill `by` gets the directory that has a copy of another skill: the root of `by` is
    /// before the root of the copy, or the complete list of the copy's root does not have the copy first.
    pub fn is_superseded(&self, copy: &str, by: &str) -> bool {
        let places = self.root_index(by).zip(self.root_index(copy));
        places.is_some_and(|(by, copy)| by < copy) || self.is_complete_for(copy)
    }

    fn root_index(&self, package: &str) -> Option<usize> {
        let id = root_id(package)?;
        self.roots.iter().position(|root| root.id == id.as_str())
    }
}

/// Returns the directory of a skill. Agents require that the directory has the name of the skill, which
/// is the name in the SKILL.md without the plugin, in lower-case letters, digits and hyphens.
fn directory_name(skill: &Skill) -> Option<String> {
    let name = suggest_name(bare_name(&skill.name));
    if !name.is_empty() {
        return Some(name);
    }

    let handle = ResourceHandle::parse(&skill.package).ok()?;
    let path = String::from_utf8_lossy(handle.path.file_name()?);
    Some(suggest_name(&path)).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::SkillList;
    use caproot_core::proto::caproot::v1::{
        Diagnostic, DiagnosticCode, ListSkillsResponse, NotOffered, RootCounts, RootState,
        RootStatus, Severity, Skill,
    };

    fn list_of(states: &[(&str, RootState)]) -> ListSkillsResponse {
        let roots = states.iter().map(|(id, state)| RootStatus {
            id: (*id).to_owned(),
            state: (*state).into(),
            ..RootStatus::default()
        });
        ListSkillsResponse {
            roots: roots.collect(),
            ..ListSkillsResponse::default()
        }
    }

    #[test]
    fn a_directory_has_the_name_of_the_skill() {
        for (name, package, directory) in [
            ("pdf", "skill://r/x", Some("pdf")),
            ("kit:deploy", "skill://r/kit/skills/d", Some("deploy")),
            ("My Skill", "skill://r/x", Some("my-skill")),
            (".git", "skill://r/x", Some("git")),
            ("..", "skill://r/a_b", Some("a-b")),
            ("…", "skill://r", None),
        ] {
            let mut list = list_of(&[]);
            list.skills.push(Skill {
                name: name.to_owned(),
                package: package.to_owned(),
                ..Skill::default()
            });
            let mut list = SkillList::new(list);
            let names: Vec<_> = list.take_skills().into_keys().collect();
            assert_eq!(names.first().map(String::as_str), directory, "{name}");
            assert_eq!(list.unnamed.len(), usize::from(directory.is_none()));
        }
    }

    #[test]
    fn a_skill_that_is_switched_off_has_no_directory() {
        for (reason, has_directory) in [
            (NotOffered::Unspecified, true),
            (NotOffered::PeopleOnly, true),
            (NotOffered::Unlisted, false),
            (NotOffered::SwitchedOff, false),
        ] {
            let mut list = list_of(&[]);
            list.skills.push(Skill {
                name: "pdf".to_owned(),
                package: "skill://r/pdf".to_owned(),
                not_offered: reason.into(),
                ..Skill::default()
            });
            let skills = SkillList::new(list).take_skills();
            assert_eq!(!skills.is_empty(), has_directory, "{reason:?}");
        }
    }

    #[test]
    fn only_a_complete_list_of_a_ready_root_allows_a_removal() {
        let ready = list_of(&[("a", RootState::Ready)]);
        assert!(SkillList::new(ready.clone()).is_complete_for("skill://a/x"));
        assert!(!SkillList::new(ready.clone()).is_complete_for("skill://b/x"));
        for state in [RootState::Pending, RootState::Unavailable] {
            let list = list_of(&[("a", state)]);
            assert!(!SkillList::new(list).is_complete_for("skill://a/x"));
        }
        let mut truncated = ready.clone();
        truncated.roots[0].truncated = true;
        assert!(!SkillList::new(truncated).is_complete_for("skill://a/x"));

        let problem = |code: DiagnosticCode, severity: Severity| Diagnostic {
            code: code.into(),
            severity: severity.into(),
            root_id: "a".to_owned(),
            ..Diagnostic::default()
        };
        for (code, severity, is_complete) in [
            (DiagnosticCode::PackageChanged, Severity::Error, false),
            (DiagnosticCode::PackagesNotApproved, Severity::Error, false),
            // The lock only warns, so that the skill is listed.
            (DiagnosticCode::PackageChanged, Severity::Warning, true),
            (DiagnosticCode::YamlSyntax, Severity::Error, true),
        ] {
            let mut list = ready.clone();
            list.diagnostics.push(problem(code, severity));
            let list = SkillList::new(list);
            assert_eq!(list.is_complete_for("skill://a/x"), is_complete, "{code:?}");
        }

        // Errors that were not sent may be about hidden skills.
        let mut cut = ready;
        cut.diagnostics
            .push(problem(DiagnosticCode::YamlSyntax, Severity::Error));
        cut.roots[0].counts = Some(RootCounts {
            diagnostics: 2,
            ..RootCounts::default()
        });
        assert!(!SkillList::new(cut).is_complete_for("skill://a/x"));
    }

    #[test]
    fn the_first_root_takes_a_directory_from_a_later_root() {
        let list = list_of(&[("a", RootState::Ready), ("b", RootState::Unavailable)]);
        let list = SkillList::new(list);
        assert!(list.is_superseded("skill://b/x", "skill://a/x"));
        assert!(list.is_superseded("skill://a/x", "skill://b/x"));
        assert!(!list.is_superseded("skill://other/x", "skill://a/x"));

        let list = list_of(&[("a", RootState::Pending), ("b", RootState::Ready)]);
        let list = SkillList::new(list);
        assert!(!list.is_superseded("skill://a/x", "skill://b/x"));
    }
}
