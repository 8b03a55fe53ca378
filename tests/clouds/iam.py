"""IAM as far as the shipped policy uses it: actions, resources, and conditions on tags, judged for each request.

What a request needs is AWS's service authorization reference: each action with its resource, whose tags are looked up
behind the proxy, and the values of its condition keys. A call that launches machines needs rights of its own for the
fleet, the machines, their tags, the launch template and what it names, and the role that they get by it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple
from urllib.parse import unquote

_ACCOUNT = "123456789012"


class Right(NamedTuple):
    """What one request needs: an action on a resource, with the values of condition keys."""

    action: str
    resource: str
    context: Mapping[str, str]


class Policy:
    """An identity policy of statements that allow; ``used`` are the pairs of statement and action that were needed."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._statements: list[Mapping[str, Any]] = document["Statement"]
        assert all(one["Effect"] == "Allow" for one in self._statements)
        self.rights = {(one["Sid"], action) for one in self._statements for action in one["Action"]}
        self.used: set[tuple[str, str]] = set()

    def lacks(self, rights: Iterable[Right]) -> str:
        """The first right that no statement gives; empty if all are given."""
        for right in rights:
            giving = [one["Sid"] for one in self._statements if _gives(one, right)]
            if not giving:
                return f"{right.action} on {right.resource} with {dict(right.context)}"
            self.used |= {(sid, right.action) for sid in giving}
        return ""


def _gives(statement: Mapping[str, Any], right: Right) -> bool:
    resources = statement["Resource"]
    return (
        right.action in statement["Action"]
        and any(
            fnmatchcase(right.resource, glob) for glob in ([resources] if isinstance(resources, str) else resources)
        )
        and all(
            _meets(operator, right.context.get(key), values)
            for operator, keys in statement.get("Condition", {}).items()
            for key, values in keys.items()
        )
    )


def _meets(operator: str, value: str | None, wanted: str | list[str]) -> bool:
    """Whether a key has one of the values; a key without a value meets nothing."""
    assert operator in ("StringEquals", "StringLike"), operator
    known = [wanted] if isinstance(wanted, str) else wanted
    return value is not None and any(fnmatchcase(value, one) if "Like" in operator else value == one for one in known)


class Resources:
    """The rights that requests need, by what is behind the proxy; ``ec2`` and the others are clients of that."""

    def __init__(self, region: str, ec2: Any, asg: Any, eks: Any, iam: Any) -> None:
        self._region = region
        self._ec2, self._asg, self._eks, self._iam = ec2, asg, eks, iam

    def needed(self, action: str, path: str, form: Mapping[str, str]) -> Iterator[Right]:
        """All rights that a request needs."""
        service, _, name = action.partition(":")
        if name.startswith("Describe"):
            yield Right(action, "*", {})
        elif service == "autoscaling":
            yield self._on_group(action, form)
        elif service == "eks":
            yield self._on_node_group(action, path)
        elif action == "ec2:CreateFleet":
            yield from self._launch(form)
        else:
            ids = [value for key, value in form.items() if re.fullmatch(r"(?:ResourceId|InstanceId)\.\d+", key)]
            pages = self._ec2.describe_instances(Filters=[{"Name": "instance-id", "Values": ids}])["Reservations"]
            tags = {one["InstanceId"]: one.get("Tags", []) for page in pages for one in page["Instances"]}
            for id_ in ids:
                yield Right(action, self._arn("ec2", f"instance/{id_}"), _tags_of(tags.get(id_, [])))

    def _on_group(self, action: str, form: Mapping[str, str]) -> Right:
        name = form.get("AutoScalingGroupName") or form.get("Tags.member.1.ResourceId", "")
        if "InstanceId" in form:
            found = self._asg.describe_auto_scaling_instances(InstanceIds=[form["InstanceId"]])
            name = next((one["AutoScalingGroupName"] for one in found["AutoScalingInstances"]), "")
        tags: list[dict[str, str]] = []
        if name:
            found = self._asg.describe_auto_scaling_groups(AutoScalingGroupNames=[name])
            for group in found["AutoScalingGroups"]:
                tags += group["Tags"]
        arn = self._arn("autoscaling", f"autoScalingGroup:*:autoScalingGroupName/{name}")
        return Right(action, arn, _tags_of(tags))

    def _on_node_group(self, action: str, path: str) -> Right:
        where = unquote(path).partition("?")[0]
        found = re.search(r"clusters?/([^/]+)/node-?groups?/([^/]+)", where) or re.search(
            r"nodegroup/([^/]+)/([^/]+)", where
        )
        assert found is not None, where
        group = self._eks.describe_nodegroup(clusterName=found[1], nodegroupName=found[2])["nodegroup"]
        tags = [{"Key": key, "Value": value} for key, value in group.get("tags", {}).items()]
        return Right(action, group["nodegroupArn"], _tags_of(tags))

    def _launch(self, form: Mapping[str, str]) -> Iterator[Right]:
        stems = {
            value: key.removesuffix("ResourceType") for key, value in form.items() if key.endswith(".ResourceType")
        }
        for kind, by in (("fleet", "CreateFleet"), ("instance", "RunInstances")):
            arn = self._arn("ec2", f"{kind}/*")
            keys = (
                key for key in form if kind in stems and re.fullmatch(rf"{re.escape(stems[kind])}Tag\.\d+\.Key", key)
            )
            tags = {f"aws:RequestTag/{form[key]}": form[key.removesuffix("Key") + "Value"] for key in keys}
            yield Right(f"ec2:{by}", arn, tags)
            if tags:
                yield Right("ec2:CreateTags", arn, {**tags, "ec2:CreateAction": by})
        for by in ("CreateFleet", "RunInstances"):
            yield from self._from_template(f"ec2:{by}", form)
        role = self._role(form)
        if role:
            yield Right("iam:PassRole", role, {"iam:PassedToService": "ec2.amazonaws.com"})

    def _from_template(self, action: str, form: Mapping[str, str]) -> Iterator[Right]:
        """The launch template with its tags, and what the machines are launched with, which gets no tags."""
        template = self._template(form)
        found = self._ec2.describe_launch_templates(LaunchTemplateIds=[template["LaunchTemplateId"]])
        tags = found["LaunchTemplates"][0].get("Tags", [])
        yield Right(action, self._arn("ec2", f"launch-template/{template['LaunchTemplateId']}"), _tags_of(tags))
        yield Right(action, f"arn:aws:ec2:{self._region}::image/{template['LaunchTemplateData']['ImageId']}", {})
        for kind in ("subnet", "network-interface", "security-group", "volume"):
            yield Right(action, self._arn("ec2", f"{kind}/*"), {})

    def _template(self, form: Mapping[str, str]) -> Mapping[str, Any]:
        stem = "LaunchTemplateConfigs.1.LaunchTemplateSpecification."
        named = {key: form[stem + key] for key in ("LaunchTemplateId", "LaunchTemplateName") if stem + key in form}
        versions = self._ec2.describe_launch_template_versions(**named, Versions=[form[f"{stem}Version"]])
        found: Mapping[str, Any] = versions["LaunchTemplateVersions"][0]
        return found

    def _role(self, form: Mapping[str, str]) -> str:
        """Role of the instance profile in the launch template, empty without one."""
        profile = self._template(form)["LaunchTemplateData"].get("IamInstanceProfile", {})
        name = profile.get("Name") or profile.get("Arn", "").rpartition("/")[2]
        if not name:
            return ""
        found = self._iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
        return str(found["Roles"][0]["Arn"])

    def _arn(self, service: str, what: str) -> str:
        return f"arn:aws:{service}:{self._region}:{_ACCOUNT}:{what}"


def _tags_of(tags: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {f"aws:ResourceTag/{tag['Key']}": tag["Value"] for tag in tags}
