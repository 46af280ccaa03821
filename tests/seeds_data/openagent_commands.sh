openagent
openagent --resume
openagent --resume <ID>
echo "Explain this error: $(cat error.log)" | openagent --no-approval
