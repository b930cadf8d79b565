"""A release, step by step, on any machine: see docs/project/releases.md.

    python -m tools.release check              check that all files state one version, and that the changelog has it
    python -m tools.release set VERSION        state VERSION everywhere python -m tools.release notes              the
    changelog's section of this version python -m tools.release wheel              wheel and source archive python -m
    tools.release charts             both charts as packages (Helm) python -m tools.release sbom               a bill
    of materials for each image (CycloneDX) python -m tools.release images             the three images (Docker) python
    -m tools.release sums               SHA256SUMS over all of that

Everything goes to `build/release`. No step publishes anything; `.github/workflows/release.yml` does that for a tag.
"""
