"""Where the clients' own files are looked for."""

from pathlib import Path

import pytest

from recorders.client_config import ClientConfig
from recorders.config_files import read_config


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path):
    """A folder inside a repository."""
    folder = tmp_path / "repository" / "folder"
    folder.mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir()
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def claude(home, project, **environ):
    return read_config("claude", ["claude"], {"HOME": str(home), **environ}, project)


def test_without_files_nothing_is_known(home, project):
    for client in ("claude", "codex", "opencode", "generic"):
        assert read_config(client, [client], {"HOME": str(home)}, project) == ClientConfig()


def test_claude_codes_local_settings_go_before_the_projects_and_those_before_the_users(home, project):
    write(home / ".claude/settings.json", '{"env": {"A": "user", "B": "user", "C": "user"}}')
    write(project / ".claude/settings.json", '{"env": {"B": "project", "C": "project"}}')
    write(project / ".claude/settings.local.json", '{"env": {"C": "local"}}')
    assert claude(home, project).environment == {"A": "user", "B": "project", "C": "local"}


def test_claude_codes_folder_can_be_elsewhere(home, project, tmp_path):
    write(tmp_path / "other/settings.json", '{"env": {"A": "1"}}')
    assert claude(home, project, CLAUDE_CONFIG_DIR=str(tmp_path / "other")).environment == {"A": "1"}


def test_codex_reads_the_users_file_and_those_from_the_repository_down(home, project, tmp_path):
    write(tmp_path / "codex/config.toml", 'model_provider = "user"\nopenai_base_url = "http://u"\n')
    write(project.parent / ".codex/config.toml", 'model_provider = "repository"\n')
    environ = {"HOME": str(home), "CODEX_HOME": str(tmp_path / "codex")}
    config = read_config("codex", ["codex"], environ, project)
    assert (config.provider, config.base_urls) == ("repository", {"openai": "http://u"})
    assert read_config("codex", ["codex", "-c", "model_provider=given"], environ, project).provider == "given"


def test_opencodes_variable_goes_before_project_own_file_and_the_users(home, project, tmp_path):
    def provider(name):
        return f'{{"model": "{name}/m", "provider": {{"{name}": {{"options": {{"baseURL": "http://{name}"}}}}}}}}'

    write(home / ".config/opencode/opencode.jsonc", provider("user") + " // mine")
    environ = {"HOME": str(home)}
    seen = [read_config("opencode", ["opencode"], environ, project).provider]
    write(tmp_path / "own.json", provider("own"))
    environ["OPENCODE_CONFIG"] = str(tmp_path / "own.json")
    seen.append(read_config("opencode", ["opencode"], environ, project).provider)
    write(project.parent / "opencode.json", provider("repository"))
    seen.append(read_config("opencode", ["opencode"], environ, project).provider)
    write(project / ".opencode/opencode.json", provider("folder"))
    seen.append(read_config("opencode", ["opencode"], environ, project).provider)
    environ["OPENCODE_CONFIG_CONTENT"] = provider("content")
    config = read_config("opencode", ["opencode"], environ, project)
    assert [*seen, config.provider] == ["user", "own", "repository", "folder", "content"]
    assert set(config.base_urls) == {"user", "own", "repository", "folder", "content"}


def test_outside_a_repository_only_the_folder_itself_is_looked_at(home, tmp_path):
    write(tmp_path / "opencode.json", '{"model": "above/m"}')
    (tmp_path / "folder").mkdir()
    environ = {"HOME": str(home)}
    assert read_config("opencode", ["opencode"], environ, tmp_path / "folder").provider is None
    assert read_config("opencode", ["opencode"], environ, tmp_path).provider == "above"
