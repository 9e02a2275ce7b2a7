//! Results that Python reads: the result of a tool, and a skill of a list.

use caproot_client::session;
use pyo3::prelude::*;
use std::collections::BTreeMap;

/// Result of a tool for a model.
#[pyclass(frozen, eq, module = "caproot")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// Whether the call succeeded. If not, `text` has the error and the next step.
    #[pyo3(get)]
    pub ok: bool,
    /// Whether third parties wrote the result, so that a model should follow no instruction in it.
    #[pyo3(get)]
    pub external: bool,
    /// One JSON object of at most `result_bytes` of the session.
    #[pyo3(get)]
    pub text: String,
    /// Images and sounds that `text` names by type and size. Only tools of MCP servers have images.
    #[pyo3(get)]
    pub images: Vec<ResultImage>,
}

/// Image or sound of a tool's result.
#[pyclass(frozen, eq, from_py_object, module = "caproot")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultImage {
    /// Type as the server names it, such as `image/png`.
    #[pyo3(get)]
    pub mime_type: String,
    bytes: Vec<u8>,
}

/// Authority of a skill.
#[pyclass(frozen, eq, hash, module = "caproot")]
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Authority {
    /// `executor`, `local`, `mcp` or `site`.
    #[pyo3(get)]
    pub kind: String,
    /// Id of the selected root, of the directory, of the server or of the site.
    #[pyo3(get)]
    pub id: String,
}

/// Skill of a list.
#[pyclass(frozen, eq, hash, module = "caproot")]
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Skill {
    /// Name, which may begin with the name of a plugin: `deploy-kit:deploy`.
    #[pyo3(get)]
    pub name: String,
    /// Description by the author of the skill.
    #[pyo3(get)]
    pub description: String,
    /// Handle of the skill.
    #[pyo3(get)]
    pub package: String,
    /// Handle of its SKILL.md.
    #[pyo3(get)]
    pub main_resource: String,
    /// Package in each environment, if several environments have the skill; otherwise empty.
    #[pyo3(get)]
    pub environments: BTreeMap<String, String>,
    pub source: Authority,
}

impl From<session::ListedSkill> for Skill {
    fn from(skill: session::ListedSkill) -> Self {
        let session::SkillAuthority { kind, id } = skill.authority;
        Self {
            name: skill.name,
            description: skill.description,
            package: skill.package,
            main_resource: skill.main_resource,
            environments: skill.environments,
            source: Authority { kind, id },
        }
    }
}

impl From<session::ToolResult> for ToolResult {
    fn from(result: session::ToolResult) -> Self {
        Self {
            ok: result.success,
            external: result.external_context,
            text: result.json,
            images: result.images.into_iter().map(ResultImage::from).collect(),
        }
    }
}

impl From<session::ResultImage> for ResultImage {
    fn from(image: session::ResultImage) -> Self {
        Self {
            mime_type: image.mime_type,
            bytes: image.bytes,
        }
    }
}

#[pymethods]
impl ResultImage {
    #[new]
    fn new(mime_type: String, data: Vec<u8>) -> Self {
        Self {
            mime_type,
            bytes: data,
        }
    }

    /// Returns the content.
    #[getter]
    fn data(&self) -> &[u8] {
        &self.bytes
    }

    fn __repr__(&self) -> String {
        let bytes = self.bytes.len();
        format!("ResultImage(mime_type={:?}, bytes={bytes})", self.mime_type)
    }
}

#[pymethods]
impl ToolResult {
    #[new]
    #[pyo3(signature = (ok, external, text, images=Vec::new()))]
    fn new(ok: bool, external: bool, text: String, images: Vec<ResultImage>) -> Self {
        Self {
            ok,
            external,
            text,
            images,
        }
    }

    /// Returns the parsed object.
    fn json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("json")?.call_method1("loads", (&self.text,))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let text = self.text.clone().into_pyobject(py)?.repr()?;
        let ok = self.ok.into_pyobject(py)?.repr()?;
        let external = self.external.into_pyobject(py)?.repr()?;
        Ok(format!(
            "ToolResult(ok={ok}, external={external}, text={text})"
        ))
    }
}

#[pymethods]
impl Authority {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let kind = self.kind.clone().into_pyobject(py)?.repr()?;
        let id = self.id.clone().into_pyobject(py)?.repr()?;
        Ok(format!("Authority(kind={kind}, id={id})"))
    }
}

#[pymethods]
impl Skill {
    /// Authority that lists the skill.
    #[getter]
    fn authority(&self) -> Authority {
        self.source.clone()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let name = self.name.clone().into_pyobject(py)?.repr()?;
        let package = self.package.clone().into_pyobject(py)?.repr()?;
        Ok(format!("Skill(name={name}, package={package})"))
    }
}
