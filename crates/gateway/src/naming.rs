//! What a client says of its call in our own headers: for which service and end user it is, and of which task.
//!
//! They are for us: none is sent on. One that cannot be read, or occurs twice, is refused, since a limit might hang on it.

use http::HeaderMap;
use tollbook_admission::Task;

use crate::problem::Problem;

/// The names, as the client gave them.
#[derive(Debug, Default)]
pub(crate) struct Named {
    pub(crate) service: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) task: Option<Task>,
}

impl Named {
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        Ok(Self {
            service: one(headers, "x-tollbook-service", "invalid_subject")?.map(str::to_owned),
            user: one(headers, "x-tollbook-user", "invalid_subject")?.map(str::to_owned),
            task: one(headers, "x-tollbook-task", "invalid_task")?.map(task).transpose()?,
        })
    }
}

fn one<'a>(
    headers: &'a HeaderMap,
    name: &'static str,
    code: &'static str,
) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::invalid(format!("the header {name} occurs twice")).code(code));
    }
    match value.to_str() {
        Ok(text) if !text.trim().is_empty() => Ok(Some(text.trim())),
        _ => Err(Problem::invalid(format!("the header {name} cannot be read")).code(code)),
    }
}

fn task(tag: &str) -> Result<Task, Problem> {
    Task::new(tag).ok_or_else(|| {
        let most = Task::TAG_MAX;
        let text = format!("x-tollbook-task takes 1 to {most} letters, digits, '-', '_', '.', ':' and '/'");
        Problem::invalid(text).code("invalid_task")
    })
}
