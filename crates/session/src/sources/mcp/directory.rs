//! Files of a skill whose server declares none: listed directory by directory with
//! `resources/directory/read`, within limits. The list is an observation; it declares no digests.

use super::address::{is_in_dir, to_handle};
use super::fetch::{invalid_response, tool_error};
use super::limits::{MAX_DIRECTORIES, MAX_PAGES, MAX_SKILL_FILES};
use crate::ToolError;
use crate::sources::remote::undeclared_files_error;
use crate::sources::{PackageFile, PackageFilesPage};
use rmcp::RoleClient;
use rmcp::model::{ReadResourceDirectoryRequestParams, Resource};
use rmcp::service::Peer;
use std::collections::{BTreeMap, HashSet, VecDeque};

/// Walk through the directories of a skill.
struct DirectoryWalk<'a> {
    directory: &'a str,
    pending: VecDeque<String>,
    seen: HashSet<String>,
    /// Sizes by URI.
    files: BTreeMap<String, Option<u64>>,
    truncated: bool,
}

/// Returns whether a server lists directories.
fn lists_directories(peer: &Peer<RoleClient>) -> bool {
    peer.peer_info()
        .is_some_and(|info| info.capabilities.supports_directory_read())
}

/// Lists the files below the directory of a skill, all on one page, if the server lists directories.
pub async fn list_directory_files(
    server: &str,
    peer: &Peer<RoleClient>,
    directory: &str,
) -> Result<PackageFilesPage, ToolError> {
    if !lists_directories(peer) {
        return Err(undeclared_files_error());
    }
    let mut walk = DirectoryWalk {
        directory,
        pending: VecDeque::from([directory.to_owned()]),
        seen: HashSet::from([directory.to_owned()]),
        files: BTreeMap::new(),
        truncated: false,
    };
    while let Some(next) = walk.pending.pop_front() {
        walk.read_directory(peer, &next).await?;
    }

    let mut files: Vec<_> = walk
        .files
        .into_iter()
        .map(|(uri, size_bytes)| PackageFile {
            resource: to_handle(server, &uri),
            size_bytes,
            media_type: String::new(),
        })
        .collect();
    files.sort_by(|a, b| a.resource.cmp(&b.resource));
    Ok(PackageFilesPage {
        files,
        truncated: walk.truncated,
        ..PackageFilesPage::default()
    })
}

impl DirectoryWalk<'_> {
    /// Adds all pages of one directory.
    async fn read_directory(
        &mut self,
        peer: &Peer<RoleClient>,
        directory: &str,
    ) -> Result<(), ToolError> {
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let mut params = ReadResourceDirectoryRequestParams::new(directory);
            params.cursor = cursor;
            let page = peer
                .read_resource_directory(params)
                .await
                .map_err(|error| tool_error(&error))?;

            for child in page.resources {
                self.add_child(directory, child)?;
            }
            cursor = page.next_cursor.filter(|next| !next.is_empty());
            if cursor.is_none() || self.truncated {
                return Ok(());
            }
        }
        self.truncated = true;
        Ok(())
    }

    /// Adds a child of a directory. The child must be directly in the directory.
    fn add_child(&mut self, directory: &str, child: Resource) -> Result<(), ToolError> {
        let name = child.uri.strip_prefix(directory);
        let name = name.and_then(|rest| rest.strip_prefix('/'));
        if !is_in_dir(&child.uri, self.directory) || name.is_none_or(|name| name.contains('/')) {
            return Err(invalid_response(
                "a child of a directory is not in the directory",
            ));
        }

        if child.is_directory() {
            if self.seen.len() == MAX_DIRECTORIES {
                self.truncated = true;
            } else if self.seen.insert(child.uri.clone()) {
                self.pending.push_back(child.uri);
            }
        } else if self.files.len() == MAX_SKILL_FILES {
            self.truncated = true;
        } else {
            self.files.insert(child.uri, child.size);
        }
        Ok(())
    }
}
