//! What a manifest says of its plugin to people: words, links, colours and pictures.

use super::fields::{At, Fields, MAX_NAME, MAX_TEXT};
use super::{place, secret};
use crate::domain::{Code, RelPath, text};

/// Characters of a short text.
const MAX_WORD: usize = 64;
/// Characters of a long description.
const MAX_LONG: usize = 4_096;
/// Pictures of what a plugin looks like.
const MAX_SCREENSHOTS: usize = 16;

/// The plugin in words and pictures. A text that is there is not empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)] // the proto's `Plugin` says what each means
pub struct About {
    pub description: Option<Box<str>>,
    pub keywords: Box<[Box<str>]>,
    pub author: Option<Author>,
    pub homepage: Option<Box<str>>,
    pub repository: Option<Box<str>>,
    pub license: Option<Box<str>>,
    pub interface: Option<Interface>,
}

/// Who made it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)] // the proto's `Author` says what each means
pub struct Author {
    pub name: Option<Box<str>>,
    pub email: Option<Box<str>>,
    pub url: Option<Box<str>>,
}

/// How it presents itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)] // the proto's `PluginInterface` says what each means
pub struct Interface {
    pub display_name: Option<Box<str>>,
    pub short_description: Option<Box<str>>,
    pub long_description: Option<Box<str>>,
    pub developer_name: Option<Box<str>>,
    pub category: Option<Box<str>>,
    pub capabilities: Box<[Box<str>]>,
    pub website_url: Option<Box<str>>,
    pub privacy_policy_url: Option<Box<str>>,
    pub terms_of_service_url: Option<Box<str>>,
    pub default_prompts: Box<[Box<str>]>,
    pub brand_color: Option<Box<str>>,
    /// The icon of a composer, the logo, that for dark screens; below the plugin.
    pub images: [Option<RelPath>; 3],
    /// Below the plugin.
    pub screenshots: Box<[RelPath]>,
}

/// Reads a manifest.
pub(super) fn read(fields: &mut Fields<'_>, root: At<'_>) -> About {
    About {
        description: fields.line(root, "description", MAX_TEXT),
        keywords: fields.lines(root, "keywords", MAX_WORD),
        author: author(fields, root, "author"),
        homepage: link(fields, root, "homepage"),
        repository: repository(fields, root),
        license: fields.line(root, "license", MAX_NAME),
        interface: interface(fields, root),
    }
}

/// An address, with what may be secret in it taken out.
pub(super) fn link(fields: &mut Fields<'_>, at: At<'_>, key: &str) -> Option<Box<str>> {
    fields.whole(at, key, MAX_TEXT).map(|url| secret::url(url).0.into())
}

/// An author: a name, or an object.
pub(super) fn author(fields: &mut Fields<'_>, at: At<'_>, key: &str) -> Option<Author> {
    let value = at.get(key)?;
    let author = if value.as_text().is_some() {
        Author { name: fields.line(at, key, MAX_NAME), ..Author::default() }
    } else if value.as_map().is_some() {
        let at = At::named(value, key, "");
        fields.unknown(at, &["name", "email", "url"]);
        Author {
            name: fields.line(at, "name", MAX_NAME),
            email: fields.line(at, "email", MAX_NAME),
            url: link(fields, at, "url"),
        }
    } else {
        fields.wrong(at, key, value, "text or an object");
        return None;
    };
    (author != Author::default()).then_some(author)
}

/// An address, or the object that package managers write.
fn repository(fields: &mut Fields<'_>, root: At<'_>) -> Option<Box<str>> {
    match root.get("repository") {
        Some(value) if value.as_map().is_some() => {
            link(fields, At::named(value, "repository", ""), "url")
        }
        _ => link(fields, root, "repository"),
    }
}

fn interface(fields: &mut Fields<'_>, root: At<'_>) -> Option<Interface> {
    const KEYS: &[&str] = &[
        "displayName",
        "shortDescription",
        "longDescription",
        "developerName",
        "category",
        "capabilities",
        "websiteURL",
        "websiteUrl",
        "privacyPolicyURL",
        "privacyPolicyUrl",
        "termsOfServiceURL",
        "termsOfServiceUrl",
        "defaultPrompt",
        "brandColor",
        "composerIcon",
        "logo",
        "logoDark",
        "screenshots",
    ];
    let at = match root.get("interface") {
        Some(value) if value.as_map().is_none() => {
            fields.wrong(root, "interface", value, "an object");
            None
        }
        value => value.map(|value| At::named(value, "interface", "")),
    };
    // Some manifests say these at the top.
    let mut found = Interface {
        display_name: fields.line(root, "displayName", MAX_NAME),
        category: fields.line(root, "category", MAX_WORD),
        images: [None, image(fields, root, "logo"), None],
        ..Interface::default()
    };
    if let Some(at) = at {
        fields.unknown(at, KEYS);
        let one_of = |fields: &mut Fields<'_>, keys: [&str; 2]| {
            let key = keys.into_iter().find(|key| at.get(key).is_some())?;
            link(fields, at, key)
        };
        let [_, top, _] = found.images;
        found = Interface {
            display_name: fields.line(at, "displayName", MAX_NAME).or(found.display_name),
            short_description: fields.line(at, "shortDescription", MAX_TEXT),
            long_description: fields.line(at, "longDescription", MAX_LONG),
            developer_name: fields.line(at, "developerName", MAX_NAME),
            category: fields.line(at, "category", MAX_WORD).or(found.category),
            capabilities: fields.lines(at, "capabilities", MAX_WORD),
            website_url: one_of(fields, ["websiteURL", "websiteUrl"]),
            privacy_policy_url: one_of(fields, ["privacyPolicyURL", "privacyPolicyUrl"]),
            terms_of_service_url: one_of(fields, ["termsOfServiceURL", "termsOfServiceUrl"]),
            default_prompts: fields.lines(at, "defaultPrompt", MAX_TEXT),
            brand_color: color(fields, at, "brandColor"),
            images: [
                image(fields, at, "composerIcon"),
                image(fields, at, "logo").or(top),
                image(fields, at, "logoDark"),
            ],
            screenshots: screenshots(fields, at),
        };
    }
    (found != Interface::default()).then_some(found)
}

fn image(fields: &mut Fields<'_>, at: At<'_>, key: &str) -> Option<RelPath> {
    let text = fields.whole(at, key, MAX_TEXT)?;
    inside(fields, key, text)
}

fn screenshots(fields: &mut Fields<'_>, at: At<'_>) -> Box<[RelPath]> {
    let texts = fields.texts(at, "screenshots", MAX_TEXT);
    let texts = texts.into_iter().take(MAX_SCREENSHOTS);
    texts.filter_map(|text| inside(fields, "screenshots", text)).collect()
}

/// The place of a file that a manifest names.
pub(super) fn inside(fields: &mut Fields<'_>, key: &str, text: &str) -> Option<RelPath> {
    let found = place::place(text);
    if found.is_none() {
        let text = secret::path(text);
        let why = format!("`{key}` names {text}, and must be `./` and a path inside the plugin");
        fields.warn(Code::PathInvalid, why);
    }
    found
}

fn color(fields: &mut Fields<'_>, at: At<'_>, key: &str) -> Option<Box<str>> {
    let text = fields.whole(at, key, MAX_WORD)?;
    let digits = text.strip_prefix('#').unwrap_or_default();
    if digits.len() == 6 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Some(text.into());
    }
    let text = text::shown(&secret::clean(text));
    fields.warn(Code::FieldInvalid, format!("`{key}` is {text}, and must be `#RRGGBB`; left out"));
    None
}
