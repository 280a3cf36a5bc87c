//! How models are counted: the mode, the tokenizer's file, the chat template.

use std::fmt::Write as _;
use std::sync::Arc;

use tollbook::config::{Setup, load, load_whole};
use tollbook_admission::{CountMode, TokenizerFile};
use tollbook_pricing::TOKENIZER_BYTES_MAX;

/// One llm_token per word.
const WORDS: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
    "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,
    "model":{"type":"WordLevel","vocab":{"[UNK]":0,"word":1},"unk_token":"[UNK]"}}"#;

/// A folder with a configuration whose models have these fields, and the files it names.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(models: &[&str]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.configure(models);
        folder
    }

    fn configure(&self, models: &[&str]) {
        let mut text =
            "upstreams:\n  - { name: u, dialect: openai, base_url: http://127.0.0.1:1 }\nmodels:\n"
                .to_owned();
        for (index, fields) in models.iter().enumerate() {
            writeln!(text, "  - {{ name: m{index}, upstream: u, {fields} }}").unwrap();
        }
        self.write("t.yaml", text.as_bytes());
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn light(&self) -> Result<Setup, String> {
        load(&self.path("t.yaml"), &|_| None).map_err(|error| error.to_string())
    }

    fn whole(&self, known: &[Arc<TokenizerFile>]) -> Result<Setup, String> {
        load_whole(&self.path("t.yaml"), &|_| None, known).map_err(|error| error.to_string())
    }
}

fn file_of(setup: &Setup, model: &str) -> Arc<TokenizerFile> {
    Arc::clone(setup.snapshot.models[model].counting.file.as_ref().unwrap())
}

#[test]
fn the_mode_is_auto_unless_said() {
    let modes = [
        "vocabulary: o200k",
        "input_count: auto",
        "input_count: learned",
        "input_count: exact, vocabulary: cl100k",
    ];
    let setup = Folder::new(&modes).light().unwrap();
    let of = |model: &str| setup.snapshot.models[model].counting.mode;
    assert_eq!([of("m0"), of("m1")], [CountMode::Auto; 2]);
    assert_eq!([of("m2"), of("m3")], [CountMode::Learned, CountMode::Exact]);
    let wrong = Folder::new(&["input_count: sometimes"]).light().unwrap_err();
    assert!(wrong.contains("models[0].input_count: ") && wrong.contains(":4:"), "{wrong}");
}

#[test]
fn exact_needs_something_to_count_by() {
    let wrong = Folder::new(&["input_count: exact, vocabulary: claude"]).light().unwrap_err();
    assert!(wrong.contains("models[0].input_count: `exact` needs a tokenizer"), "{wrong}");
    let folder = Folder::new(&["input_count: exact, vocabulary: qwen, tokenizer: words.json"]);
    folder.write("words.json", WORDS.as_bytes());
    assert_eq!(folder.light().unwrap().snapshot.models["m0"].counting.mode, CountMode::Exact);
}

/// A file that cannot be used is named with its field and its path, by `check` and at a reload; what is plainly none is
/// refused at a start too.
#[test]
fn a_tokenizers_file_that_cannot_be_used_is_named() {
    let folder = Folder::new(&["vocabulary: o200k", "tokenizer: words.json"]);
    let path = folder.path("words.json").display().to_string();
    let told = |what: &str, result: Result<Setup, String>| {
        let wrong = result.unwrap_err();
        let place = "models[1].tokenizer: ";
        assert!(wrong.contains(place) && wrong.contains(&path) && wrong.contains(what), "{what}: {wrong}");
    };
    told("cannot read", folder.light());
    told("cannot read", folder.whole(&[]));
    for (bytes, what) in
        [("", "is no tokenizer.json"), ("{", "is no tokenizer.json"), ("{\"a\":1}", "`model`")]
    {
        folder.write("words.json", bytes.as_bytes());
        told(what, folder.light());
        told("is no tokenizer.json", folder.whole(&[]));
    }
    // JSON with a model in it, and yet none: a start cannot tell, everything else does.
    folder.write("words.json", b"{\"model\":{\"type\":\"Unheard\"}}");
    assert!(folder.light().is_ok());
    told("is no tokenizer.json", folder.whole(&[]));
    // Sparse, so it costs nothing.
    let large = std::fs::File::create(folder.path("words.json")).unwrap();
    large.set_len(u64::try_from(TOKENIZER_BYTES_MAX).unwrap() + 1).unwrap();
    told("is larger than", folder.light());
    std::fs::remove_file(folder.path("words.json")).unwrap();
    std::fs::create_dir(folder.path("words.json")).unwrap();
    told("not a regular file", folder.light());
}

#[test]
fn models_share_a_tokenizer_and_reloads_keep_what_has_not_changed() {
    let folder = Folder::new(&["tokenizer: words.json", "tokenizer: ./words.json", "tokenizer: words.json"]);
    folder.write("words.json", WORDS.as_bytes());
    let setup = folder.whole(&[]).unwrap();
    let first = file_of(&setup, "m0");
    assert!(Arc::ptr_eq(&first, &file_of(&setup, "m2")), "read once");
    assert_eq!(first.digest(), file_of(&setup, "m1").digest());
    // The files are among those that a reload follows, once each.
    let named = setup.files.iter().filter(|file| file.ends_with("words.json")).count();
    assert!((1..=2).contains(&named), "{:?}", setup.files);

    let again = folder.whole(&[Arc::clone(&first)]).unwrap();
    assert!(Arc::ptr_eq(&first, &file_of(&again, "m0")), "the same bytes, the same tokenizer");
    assert_eq!(again.digest, setup.digest);
    folder.write("words.json", WORDS.replace("word", "other").as_bytes());
    let changed = folder.whole(&[Arc::clone(&first)]).unwrap();
    assert!(!Arc::ptr_eq(&first, &file_of(&changed, "m0")));
    assert_ne!(changed.digest, setup.digest, "a changed file is a changed configuration");
}

#[test]
fn a_chat_template_that_is_told_is_known() {
    let models = ["vocabulary: qwen", "vocabulary: qwen, framing: { per_request: 0, per_message: 7 }"];
    let setup = Folder::new(&models).light().unwrap();
    let facts = |model: &str| setup.snapshot.models[model].facts;
    assert!(!facts("m0").framing_known && facts("m1").framing_known);
    let told = facts("m1").framing;
    assert_eq!((told.per_request, told.per_message), (0, 7));
    assert_eq!(told.per_name, facts("m0").framing.per_name);
    let wrong = Folder::new(&["framing: { per_message: 10000001 }"]).light().unwrap_err();
    assert!(wrong.contains("models[0].framing.per_message: must be from 0 to 10000000"), "{wrong}");
}

#[test]
fn the_budget_of_exact_counts_is_configured() {
    let folder = Folder::new(&["vocabulary: o200k"]);
    let text = std::fs::read_to_string(folder.path("t.yaml")).unwrap();
    folder
        .write("t.yaml", format!("calls: {{ count_jobs_max: 0, count_bytes_max: 1MiB }}\n{text}").as_bytes());
    let counting = folder.light().unwrap().calls.counting;
    assert_eq!((counting.jobs_max, counting.bytes_max), (0, 1 << 20));
}
