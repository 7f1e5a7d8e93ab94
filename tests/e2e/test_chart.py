# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""The Helm chart: Helm accepts it, Kubernetes' schemas accept what it renders, and it asks for no more than it says."""

import json
import os
import subprocess
import tempfile

from harness import BUILD, ROOT, check, main

CHART = os.path.join(ROOT, "tools/packaging/helm/profd")
SIX = ["BPF", "CHECKPOINT_RESTORE", "DAC_READ_SEARCH", "PERFMON", "SYSLOG", "SYS_PTRACE"]


def helm(*args):
    return subprocess.run([f"{BUILD}/helm/helm", *args], capture_output=True, text=True)


def render(*args):
    """The objects that the chart makes: the schemas of an old and a new Kubernetes accept each."""
    made = helm("template", "there", CHART, *args)
    check(made.returncode == 0, made.stderr)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
        f.write(made.stdout)
        f.flush()
        for version in ("1.25.0", "1.37.0"):
            judged = subprocess.run([f"{BUILD}/kubernetes-validate/bin/kubernetes-validate", "--strict", "-k", version, f.name],
                                    capture_output=True, text=True)
            check(judged.returncode == 0, (version, judged.stdout, judged.stderr))
    objects = subprocess.run([f"{BUILD}/kubernetes-validate/bin/python3", "-c",
                              "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))"],
                             input=made.stdout, capture_output=True, text=True, check=True)
    return {made["kind"]: made for made in json.loads(objects.stdout) if made}


def lint():
    judged = helm("lint", "--strict", CHART)
    check(judged.returncode == 0, judged.stdout + judged.stderr)
    refused = helm("template", "there", CHART, "--set", "port=70000")
    check(refused.returncode != 0 and "port" in refused.stderr, refused)


def rights():
    pod = render()["DaemonSet"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    rights_of = container["securityContext"]
    check(pod["hostPID"] and not pod["automountServiceAccountToken"], pod)
    check(sorted(rights_of["capabilities"]["add"]) == SIX and rights_of["capabilities"]["drop"] == ["ALL"], rights_of)
    check(not rights_of["privileged"] and not rights_of["allowPrivilegeEscalation"] and rights_of["readOnlyRootFilesystem"],
          rights_of)
    host = [mount for mount in container["volumeMounts"] if mount["mountPath"].startswith("/host/")]
    check(host and all(mount["readOnly"] for mount in host), host)
    check({mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}, pod)
    check(all(probe in container for probe in ("startupProbe", "livenessProbe", "readinessProbe")), container)


def values():
    objects = render("--set", "prometheus.enabled=true", "--set", "listen=0.0.0.0", "--set", "dataDir=",
                     "--set-string", "config.store.retention_days=14", "--set", "priorityClassName=system-node-critical",
                     "--set", "env[0].name=PROFD_STORE_URL", "--set", "env[0].valueFrom.secretKeyRef.name=store",
                     "--set", "env[0].valueFrom.secretKeyRef.key=url")
    template = objects["DaemonSet"]["spec"]["template"]
    check(template["metadata"]["annotations"]["prometheus.io/scrape"] == "true", template)
    check("host" not in template["spec"]["containers"][0]["livenessProbe"]["httpGet"], template)
    configuration = objects["ConfigMap"]["data"]["profd.conf"]
    path = f"{BUILD}/chart-{os.getpid()}.conf"
    with open(path, "w", encoding="utf-8") as f:
        f.write(configuration)
    judged = subprocess.run([f"{BUILD}/profd", "--config", path, "--data-dir", f"{path}.data", "--check"], capture_output=True,
                            text=True)
    os.unlink(path)
    check("retention_days = 14" in configuration and judged.returncode == 0, (configuration, judged.stderr))


main(lint, rights, values)
