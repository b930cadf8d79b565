"""A release, step by step, on any machine: see docs/project/releases.md.

    python -m tools.release check          check that all files state one version, and that the changelog has it
    python -m tools.release set VERSION    state VERSION everywhere
    python -m tools.release notes          print the changelog's section of this version
    python -m tools.release wheel          build wheel and source archive
    python -m tools.release charts         package both charts (Helm)
    python -m tools.release sbom           write a bill of materials for each image (CycloneDX)
    python -m tools.release images         build the three images (Docker); BASE names another base image
    python -m tools.release sums           write SHA256SUMS over all of these

Everything goes to `build/release`. No step publishes anything; `.github/workflows/release.yml` does that for a tag.
"""
