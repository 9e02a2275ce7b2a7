//! Paths of icons in a sidecar. Resolution is lexical; links are not resolved.

use caproot_core::wire::RelPath;

/// Resolves the path of an icon, which is relative to `package`: `./assets/x.svg`, `assets/x.svg`,
/// or either after `../`. Returns the path below the root, or `None` unless the icon is below the
/// directory `assets` of the package or of its plugin.
#[must_use]
pub fn resolve_icon(package: &RelPath, plugin: Option<&RelPath>, text: &str) -> Option<RelPath> {
    let mut rest = text;
    let mut from = package.clone();

    loop {
        if let Some(below) = rest.strip_prefix("./") {
            rest = below;
        } else if let Some(above) = rest.strip_prefix("../") {
            from = from.parent()?;
            rest = above;
        } else {
            break;
        }
    }

    // `RelPath` rejects further dot segments, absolute and empty paths, and NUL.
    let path = from.join_path(&RelPath::new(rest.as_bytes())?);

    let is_allowed = [Some(package), plugin].into_iter().flatten().any(|owner| {
        let assets = owner
            .join(b"assets")
            .and_then(|assets| path.strip_prefix(&assets));
        assets.is_some_and(|below| !below.is_root())
    });
    is_allowed.then_some(path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{RelPath, resolve_icon};

    fn rel(text: &str) -> RelPath {
        RelPath::new(text.as_bytes()).expect(text)
    }

    #[test]
    fn icons_must_be_below_assets() {
        for (package, plugin, text, expected) in [
            ("s", None, "./assets/x.svg", Some("s/assets/x.svg")),
            ("s", None, "assets/a/x.svg", Some("s/assets/a/x.svg")),
            ("", None, "assets/x.svg", Some("assets/x.svg")),
            ("s", None, "../s/assets/x.svg", Some("s/assets/x.svg")),
            (
                "p/skills/s",
                Some("p"),
                "../../assets/logo.svg",
                Some("p/assets/logo.svg"),
            ),
            (
                "skills/s",
                Some(""),
                "./../.././assets/logo.svg",
                Some("assets/logo.svg"),
            ),
            ("p/skills/s", None, "../../assets/logo.svg", None),
            ("p/skills/s", Some("p"), "../../other/logo.svg", None),
            ("p/skills/s", Some("p"), "../assets/logo.svg", None),
            ("p/skills/s", Some("p"), "../../../assets/logo.svg", None),
            ("s", Some(""), "../../assets/logo.svg", None),
            ("s", None, "assets/../x.svg", None),
            ("s", None, "assets/..", None),
            ("s", None, "assets", None),
            ("s", None, "assets/", None),
            ("s", None, "assets//x", None),
            ("s", None, "assetsx/x", None),
            ("s", None, "x.svg", None),
            ("s", None, "/s/assets/x.svg", None),
            ("s", None, "https://example.com/assets/x.svg", None),
            ("s", None, "assets/a\0b", None),
            ("s", None, "", None),
            ("s", None, "..", None),
        ] {
            let plugin = plugin.map(rel);
            let found = resolve_icon(&rel(package), plugin.as_ref(), text);
            assert_eq!(found, expected.map(rel), "{package} {text:?}");
        }
    }

    proptest! {
        #[test]
        fn resolved_icons_are_below_assets(text in "(\\.\\./|\\./|assets|/|a|\\.\\.|\\.|\0|é|p|s){0,8}", any: String) {
            for text in [text, any] {
                if let Some(path) = resolve_icon(&rel("p/s"), Some(&rel("p")), &text) {
                    let below = |dir: &str| path.strip_prefix(&rel(dir)).is_some_and(|rest| !rest.is_root());
                    prop_assert!(below("p/assets") || below("p/s/assets"), "{path:?}");
                }
            }
        }
    }
}
