"""Projects whose commands come with the language: Rust, Go, Java, C and others."""

from collections.abc import Iterator

from refold.cli.survey.findings import Command
from refold.cli.survey.folder import Folder


def commands(folder: Folder) -> Iterator[Command]:
    for found in (_rust, _go, _maven, _gradle, _cmake, _meson, _dotnet, _others):
        yield from found(folder)


def kinds(folder: Folder) -> Iterator[str]:
    """What it is built with."""
    for names, kind in (
        (("Cargo.toml",), "Rust (Cargo)"),
        (("go.mod",), "Go"),
        (("pom.xml",), "Java (Maven)"),
        (("build.gradle", "build.gradle.kts"), "Java or Kotlin (Gradle)"),
        (("CMakeLists.txt",), "C or C++ (CMake)"),
        (("meson.build",), "C or C++ (Meson)"),
        (("Gemfile",), "Ruby (Bundler)"),
        (("mix.exs",), "Elixir (Mix)"),
        (("composer.json",), "PHP (Composer)"),
        (("Package.swift",), "Swift"),
    ):
        if folder.has(*names):
            yield kind
    if folder.ending(".sln", ".csproj", ".fsproj"):
        yield ".NET"


def _rust(folder: Folder) -> Iterator[Command]:
    if not folder.has("Cargo.toml"):
        return
    yield Command("build", "cargo build")
    yield Command("test", "cargo test")
    yield Command("one test", "cargo test NAME")
    if folder.has("clippy.toml", ".clippy.toml") or "clippy" in folder.text("Cargo.toml"):
        yield Command("check", "cargo clippy --all-targets")
    if folder.has("rustfmt.toml", ".rustfmt.toml"):
        yield Command("format", "cargo fmt")


def _go(folder: Folder) -> Iterator[Command]:
    if not folder.has("go.mod"):
        return
    yield Command("build", "go build ./...")
    yield Command("test", "go test ./...")
    yield Command("one test", "go test ./DIR -run NAME")
    yield Command("check", "go vet ./...")
    if folder.has(".golangci.yml", ".golangci.yaml", ".golangci.toml"):
        yield Command("check", "golangci-lint run")


def _maven(folder: Folder) -> Iterator[Command]:
    if folder.has("pom.xml"):
        maven = "./mvnw" if folder.has("mvnw") else "mvn"
        yield Command("build", f"{maven} package")
        yield Command("test", f"{maven} test")
        yield Command("one test", f"{maven} test -Dtest=NAME")


def _gradle(folder: Folder) -> Iterator[Command]:
    if folder.has("build.gradle", "build.gradle.kts"):
        gradle = "./gradlew" if folder.has("gradlew") else "gradle"
        yield Command("build", f"{gradle} build")
        yield Command("test", f"{gradle} test")
        yield Command("one test", f"{gradle} test --tests NAME")


def _cmake(folder: Folder) -> Iterator[Command]:
    said = folder.text("CMakeLists.txt")
    if not said:
        return
    yield Command("build", "cmake -B build && cmake --build build")
    if "enable_testing" in said or "include(CTest)" in said:
        yield Command("test", "ctest --test-dir build --output-on-failure")


def _meson(folder: Folder) -> Iterator[Command]:
    said = folder.text("meson.build")
    if not said:
        return
    yield Command("build", "meson setup build && meson compile -C build")
    if "test(" in said:
        yield Command("test", "meson test -C build")


def _dotnet(folder: Folder) -> Iterator[Command]:
    if folder.ending(".sln", ".csproj", ".fsproj"):
        yield Command("build", "dotnet build")
        yield Command("test", "dotnet test")


def _others(folder: Folder) -> Iterator[Command]:
    if folder.has("Gemfile"):
        yield Command("install", "bundle install")
        if folder.has(".rspec", "spec"):
            yield Command("test", "bundle exec rspec")
    if folder.has("mix.exs"):
        yield Command("install", "mix deps.get")
        yield Command("test", "mix test")
    if folder.has("Package.swift"):
        yield Command("build", "swift build")
        yield Command("test", "swift test")
    if folder.has("composer.json"):
        yield Command("install", "composer install")
    if folder.has(".pre-commit-config.yaml"):
        yield Command("check", "pre-commit run --all-files")
