//! Files of a skill whose server declares none: listed directory by directory with
//! `resources/directory/read`, within limits. The list is an observation; it declares no digests.

use super::address::{is_in_dir, to_handle};
use super::connection::ServerLink;
use super::fetch::{invalid_response, tool_error};
use super::limits::{MAX_DIRECTORIES, MAX_PAGES, MAX_SKILL_FILES};
use crate::ToolError;
use crate::sources::remote::undeclared_files_error;
use crate::sources::{PackageFile, PackageFilesPage};
use rmcp::model::{ReadResourceDirectoryRequestParams, Resource};
use std::collections::{BTreeMap, HashSet, VecDeque};

/// Walk through the directories of a skill.
struct DirectoryWalk<'a> {
    link: &'a ServerLink,
    directory: &'a str,
    pending: VecDeque<String>,
    seen: HashSet<String>,
    /// Sizes by handle.
    files: BTreeMap<String, Option<u64>>,
    truncated: bool,
}

/// Lists the files below the directory of a skill, all on one page, if the server lists directories.
pub async fn list_directory_files(
    link: &ServerLink,
    directory: &str,
) -> Result<PackageFilesPage, ToolError> {
    let info = link.peer.peer_info();
    if info.is_none_or(|info| !info.capabilities.supports_directory_read()) {
        return Err(undeclared_files_error());
    }
    let mut walk = DirectoryWalk {
        link,
        directory,
        pending: VecDeque::from([directory.to_owned()]),
        seen: HashSet::from([directory.to_owned()]),
        files: BTreeMap::new(),
        truncated: false,
    };
    while let Some(next) = walk.pending.pop_front() {
        walk.read_directory(&next).await?;
    }

    Ok(PackageFilesPage {
        files: walk
            .files
            .into_iter()
            .map(|(resource, size_bytes)| PackageFile {
                resource,
                size_bytes,
                media_type: String::new(),
            })
            .collect(),
        truncated: walk.truncated,
        ..PackageFilesPage::default()
    })
}

impl DirectoryWalk<'_> {
    /// Adds all pages of one directory.
    async fn read_directory(&mut self, directory: &str) -> Result<(), ToolError> {
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let mut params = ReadResourceDirectoryRequestParams::new(directory);
            params.cursor = cursor;
            let page = self
                .link
                .peer
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
        let name = child
            .uri
            .strip_prefix(directory)
            .and_then(|rest| rest.strip_prefix('/'));
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
            self.files
                .insert(to_handle(&self.link.server, &child.uri), child.size);
        }
        Ok(())
    }
}
