// The roles that the Functions host's documentation requires if AzureWebJobsStorage uses an identity.

@description('Name of the storage account of the Functions host.')
param accountName string

@description('The identity of the host.')
param principalId string

var roles = {
  'Storage Blob Data Owner': 'b7e6dc6d-f1e8-4753-8033-0f276bb0955b'
  'Storage Queue Data Contributor': '974c5e8b-45b9-4653-ba55-5f855dd0fb88'
  'Storage Table Data Contributor': '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3'
}

resource account 'Microsoft.Storage/storageAccounts@2025-06-01' existing = {
  name: accountName
}

resource accountRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for role in items(roles): {
    name: guid(account.id, principalId, role.value)
    scope: account
    properties: {
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role.value)
      principalId: principalId
      principalType: 'ServicePrincipal'
    }
  }
]
