//! `--root [ID=]DIR`: parsing, the default root id, and the selection for the daemon.

use caproot_core::proto::caproot::v1::{CapabilityRootLocation, SelectedCapabilityRoot};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
#[cfg(unix)]
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
#[cfg(unix)]
use std::path::PathBuf;
use std::path::{Component, Path};

/// Bytes that are not percent-encoded in the path of a `file:` URI (RFC 3986).
const URI_PATH_ENCODE_SET: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Value of one `--root` flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootArg {
    pub id: Option<String>,
    pub dir: OsString,
}

impl RootArg {
    /// Parses `[ID=]DIR`. A value that starts like a path or URI (`/`, `./`, `../`, `file:`,
    /// `published:`) has no id, so that a directory may have a `=` in its name.
    pub fn parse(text: OsString) -> Result<Self, &'static str> {
        let bytes = text.as_encoded_bytes();
        let starts: [&[u8]; 5] = [b"/", b"./", b"../", b"file:", b"published:"];
        let bare = starts.iter().any(|start| bytes.starts_with(start));
        let equals = bytes.iter().position(|b| *b == b'=').filter(|_| !bare);
        let (id, dir) = match equals.map(|at| (std::str::from_utf8(&bytes[..at]), at)) {
            None => (None, text),
            Some((Err(_), _)) => return Err("the id is not UTF-8"),
            Some((Ok(""), _)) => return Err("the id before `=` is empty"),
            Some((Ok(id), at)) => (Some(id.to_owned()), text_after(&text, at + 1)),
        };
        if dir.is_empty() {
            return Err("the directory is empty");
        }
        Ok(Self { id, dir })
    }
}

/// Returns the text from a position after an ASCII character on.
#[cfg(unix)]
fn text_after(text: &OsStr, start: usize) -> OsString {
    OsString::from_vec(text.as_bytes()[start..].to_vec())
}

/// Returns the text from a position after an ASCII character on. A path of Linux is Unicode here.
#[cfg(windows)]
fn text_after(text: &OsStr, start: usize) -> OsString {
    text.to_string_lossy()[start..].into()
}

/// Returns the selection for the flags. A relative directory is made absolute as text only. The
/// executor, which may be another machine, resolves links and `..`. A root without an id gets the last segment of its
/// path. If the segment is taken, `-2`, `-3`, … is appended.
pub fn select_roots(
    args: &[RootArg],
    environment_id: &str,
    current_dir: Option<&Path>,
) -> Result<Vec<SelectedCapabilityRoot>, &'static str> {
    let mut taken: HashSet<String> = args.iter().filter_map(|arg| arg.id.clone()).collect();
    let roots = args.iter().map(|arg| {
        let path = wire_path(&arg.dir, current_dir)?;
        Ok(SelectedCapabilityRoot {
            id: match &arg.id {
                Some(id) => id.clone(),
                None => free_id(&last_segment(&path), &mut taken),
            },
            location: Some(CapabilityRootLocation {
                r#type: "environment".to_owned(),
                environment_id: environment_id.to_owned(),
                path,
            }),
        })
    });
    roots.collect()
}

fn is_uri(text: &&str) -> bool {
    text.starts_with("file:") || text.starts_with("published:")
}

/// Returns the directory in the form that the daemon accepts. No directory of this machine is one of an
/// executor.
#[cfg(windows)]
fn wire_path(dir: &OsStr, _current_dir: Option<&Path>) -> Result<String, &'static str> {
    let text = dir.to_str();
    let is_absolute = |text: &&str| is_uri(text) || text.starts_with('/');
    text.filter(is_absolute)
        .map(str::to_owned)
        .ok_or("give --root an absolute path of the executor, such as /srv/skills")
}

/// Returns the directory in the form that the daemon accepts: an absolute path, or a URI if it is a
/// URI or not UTF-8.
#[cfg(unix)]
fn wire_path(dir: &OsStr, current_dir: Option<&Path>) -> Result<String, &'static str> {
    if let Some(uri) = dir.to_str().filter(is_uri) {
        return Ok(uri.to_owned());
    }
    let path = Path::new(dir);
    let path = if path.is_absolute() {
        path.to_owned()
    } else {
        current_dir
            .ok_or("the current directory no longer exists; give --root an absolute path")?
            .join(path)
    };
    // Joining the components removes `.` and double slashes, and keeps `..`.
    let path: PathBuf = path.components().collect();
    path.into_os_string()
        .into_string()
        .or_else(|raw| Ok(file_uri(raw.as_bytes())))
}

/// Returns the `file:` URI of an absolute path.
pub fn file_uri(path: &[u8]) -> String {
    format!("file://{}", percent_encode(path, URI_PATH_ENCODE_SET))
}

/// Takes the first of `base`, `base-2` and so on that is not taken.
fn free_id(base: &str, taken: &mut HashSet<String>) -> String {
    let mut id = base.to_owned();
    let mut count = 1;
    while !taken.insert(id.clone()) {
        count += 1;
        id = format!("{base}-{count}");
    }
    id
}

/// Returns the default name of a root: the id of a published root, the last segment of a path, or
/// `root` for `/`.
fn last_segment(path: &str) -> String {
    if let Some(id) = path.strip_prefix("published:") {
        return id.to_owned();
    }
    let path = match path.strip_prefix("file:") {
        Some(uri) => percent_decode_str(uri).decode_utf8_lossy(),
        None => path.into(),
    };
    let mut names = Vec::new();
    for component in Path::new(&*path).components() {
        match component {
            Component::Normal(name) => names.push(name.to_string_lossy()),
            Component::ParentDir => drop(names.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    names.pop().map_or_else(|| "root".to_owned(), String::from)
}

#[cfg(test)]
mod tests {
    use super::{RootArg, select_roots};
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;
    use std::path::Path;

    fn arg(text: &str) -> RootArg {
        RootArg::parse(text.into()).expect(text)
    }

    #[test]
    fn id_prefix_is_parsed() {
        for (text, id, dir) in [
            ("skills", None, "skills"),
            ("/a/b=c", None, "/a/b=c"),
            ("./b=c", None, "./b=c"),
            ("published:a=b", None, "published:a=b"),
            ("x=published:a", Some("x"), "published:a"),
            ("deploy@1=/opt/a=b", Some("deploy@1"), "/opt/a=b"),
        ] {
            assert_eq!(
                arg(text),
                RootArg {
                    id: id.map(String::from),
                    dir: dir.into()
                }
            );
        }
        for bad in ["", "=", "=/a", "id="] {
            assert!(RootArg::parse(bad.into()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn relative_directories_become_absolute() {
        let sent = |texts: &[&str]| -> Vec<(String, String)> {
            let args: Vec<_> = texts.iter().map(|text| arg(text)).collect();
            let roots =
                select_roots(&args, "local", Some(Path::new("/home/me"))).expect("a directory");
            let pair = |root: caproot_core::proto::caproot::v1::SelectedCapabilityRoot| {
                (root.id, root.location.expect("a location").path)
            };
            roots.into_iter().map(pair).collect()
        };
        let pairs = |list: &[(&str, &str)]| -> Vec<(String, String)> {
            list.iter()
                .map(|(id, path)| ((*id).into(), (*path).into()))
                .collect()
        };
        assert_eq!(
            sent(&[
                "skills/",
                ".",
                "../other",
                "..",
                "/",
                "published:x",
                "file:///a/b%20c"
            ]),
            pairs(&[
                ("skills", "/home/me/skills"),
                ("me", "/home/me"),
                ("other", "/home/me/../other"),
                ("home", "/home/me/.."),
                ("root", "/"),
                ("x", "published:x"),
                ("b c", "file:///a/b%20c"),
            ])
        );
        assert_eq!(
            sent(&["/a/x", "/b/x", "x-2=/c", "/d/x"]),
            pairs(&[
                ("x", "/a/x"),
                ("x-3", "/b/x"),
                ("x-2", "/c"),
                ("x-4", "/d/x")
            ])
        );
        assert!(select_roots(&[arg("skills")], "local", None).is_err());
    }

    #[test]
    fn a_name_that_is_not_utf8_becomes_a_uri() {
        let args = [RootArg::parse(OsString::from_vec(b"/a b/\xff".to_vec())).expect("a path")];
        let roots = select_roots(&args, "local", None).expect("an absolute path");
        let location = roots[0].location.as_ref().expect("a location");
        assert_eq!(location.path, "file:///a%20b/%FF");
    }
}
