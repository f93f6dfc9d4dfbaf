// The role with which the site sends telemetry.

@description('Name of the Application Insights component.')
param applicationInsightsName string

@description('The identity that sends telemetry.')
param principalId string

var roles = {
  'Monitoring Metrics Publisher': '3913510d-42f4-4e42-8a64-420c390055eb'
}

resource component 'Microsoft.Insights/components@2020-02-02' existing = {
  name: applicationInsightsName
}

resource componentRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for role in items(roles): {
    name: guid(component.id, principalId, role.value)
    scope: component
    properties: {
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role.value)
      principalId: principalId
      principalType: 'ServicePrincipal'
    }
  }
]
